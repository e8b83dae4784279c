"""The package as a whole: cheap to import, honest about what is public."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tidings

PACKAGES = ["tidings"] + [module.name for module in pkgutil.walk_packages(tidings.__path__, "tidings.") if module.ispkg]


def test_importing_tidings_loads_nothing_but_its_errors_and_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import tidings; print(*sorted(set(sys.modules) - before))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    others = [name for name in output.split() if name.partition(".")[0] not in sys.stdlib_module_names]
    assert others == ["tidings", "tidings.errors"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_listed_in_order(package: str) -> None:
    module = importlib.import_module(package)
    names = module.__all__
    assert len(names) == len(set(names))
    for name in names:
        assert getattr(module, name) is not None
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and (getattr(value, "__module__", None) or "").startswith(package + ".")
    }
    assert public <= set(names)


def test_errors_say_whose_fault_it_is_by_their_exit_code() -> None:
    for name in tidings.__all__:
        error = getattr(tidings, name)
        if isinstance(error, type) and issubclass(error, Exception) and not issubclass(error, Warning):
            assert issubclass(error, tidings.TidingsError)
            assert error.__doc__ is not None
            assert error.__doc__.startswith("Raised when")
            is_callers = issubclass(error, tidings.InputError | tidings.ConfigurationError)
            assert error.exit_code == (2 if is_callers else 1)


def test_every_benchmark_can_be_imported() -> None:
    """In a process of its own, as `make bench` does: other distributions have a package `tests`, too."""
    code = "import importlib, benchmarks.__main__ as b; [importlib.import_module(f'benchmarks.{n}') for n in b.NAMES]"
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
