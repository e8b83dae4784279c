"""Extras: what a client leaves unloaded, and what everything else says when its extra is not installed."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidings.cli._app import app
from tidings.cli._needs import NEEDS, as_missing_extra
from tidings.errors import ConfigurationError
from tidings.extras import EXTRAS, missing_extra

ROOT = Path(__file__).parent.parent
HEAVY = {
    *("cryptography", "lark", "llvmlite", "lmdb", "matplotlib", "networkx", "numba", "numpy", "pandas"),
    *("prometheus_client", "pyarrow", "pyspark", "rich", "scipy", "topohub", "typer", "uvloop"),
}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def without(packages: tuple[str, ...], code: str) -> str:
    """The output of a program that runs where these packages are not installed."""
    hidden = "import sys\nfor name in " + repr(packages) + ": sys.modules[name] = None\n"
    return run(hidden + code)


def test_a_client_loads_none_of_the_heavy_packages() -> None:
    code = "import sys, tidings; tidings.connect, tidings.connect_blocking; print(*sys.modules)"
    assert HEAVY.intersection(run(code).split()) == set()


def test_a_client_loads_no_broker() -> None:
    code = "import sys, tidings; tidings.connect; print(*(n for n in sys.modules if n.startswith('tidings.')))"
    loaded = run(code).split()
    unwanted = ("tidings.simulation", "tidings.prediction", "tidings.protocol.broker._broker", "tidings.live.broker")
    assert [name for name in loaded if name.startswith(unwanted)] == []
    assert "tidings.live.client._client" in loaded


def test_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

    def packages(extra: str) -> set[str]:
        found = set[str]()
        for line in declared[extra]:
            name, inner = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", line).groups()  # type: ignore[union-attr]
            if name == "tidings":
                found |= {each for part in inner.split(",") for each in packages(part)}
            else:
                found.add(name.replace("-", "_"))
        return found

    for extra, names in EXTRAS.items():
        assert packages(extra) - {"uvloop"} == set(names)
    assert packages("all") - {"uvloop", "wsproto"} == set(EXTRAS["spark"])


def test_every_command_names_its_extra() -> None:
    import typer.main

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert commands.keys() == NEEDS.keys()
    for name, command in commands.items():
        assert f"pip install 'tidings\\[{NEEDS[name]}]'" in command.epilog


@pytest.mark.parametrize(
    ("package", "part", "extra"),
    [
        ("numba", "tidings.ordering", "order"),
        ("lmdb", "tidings.live", "broker"),
        ("llvmlite", "tidings.simulation", "lab"),
        ("pyspark", "tidings.pipeline", "spark"),
        ("pyspark", "lab", "spark"),
        ("typer", "cli", "cli"),
    ],
)
def test_the_error_names_the_smallest_extra_that_helps(package: str, part: str, extra: str) -> None:
    found = missing_extra(ModuleNotFoundError("x", name=package), part, "this")
    assert isinstance(found, ConfigurationError)
    assert str(found).endswith(f"is not installed: pip install 'tidings[{extra}]'")


def test_another_missing_module_is_our_own_bug() -> None:
    error = ModuleNotFoundError("x", name="tidings.nowhere")
    assert missing_extra(error, "lab", "this") is error
    assert as_missing_extra(error, ["simulate"]) is None


@pytest.mark.parametrize(
    ("arguments", "hidden", "message"),
    [
        (["--help"], "typer", "tidings needs typer, which is not installed: pip install 'tidings[cli]'"),
        (["plan", "x.toml"], "typer", "tidings plan needs typer, which is not installed: pip install 'tidings[lab]'"),
        (
            ["simulate", str(ROOT / "examples" / "quickstart.toml")],
            "numba",
            "tidings simulate needs numba, which is not installed: pip install 'tidings[lab]'",
        ),
        (
            ["broker", str(ROOT / "examples" / "live" / "network.toml"), "--name", "b1"],
            "lmdb",
            "tidings broker needs lmdb, which is not installed: pip install 'tidings[broker]'",
        ),
    ],
)  # fmt: skip
def test_a_command_says_what_to_type(arguments: list[str], hidden: str, message: str) -> None:
    code = (
        f"import contextlib, io\nsys.argv = ['tidings', *{arguments!r}, '--json'][: {len(arguments) + 1}]\n"
        "from tidings.cli import main\nsaid = io.StringIO()\n"
        "with contextlib.redirect_stderr(said):\n    try: main()\n    except SystemExit as end: print(end.code)\n"
        "print(said.getvalue())"
    )
    assert without((hidden,), code).split("\n")[:2] == ["2", f"error: {message}"]


def test_asking_for_an_order_without_the_extra() -> None:
    code = (
        "from tidings.errors import ConfigurationError\nfrom tidings.ordering import Policy\n"
        "policy = Policy.parse('ours-record')\n"
        "try:\n    from tidings.ordering import Receiver\nexcept ConfigurationError as error: print(error)"
    )
    assert without(("numba",), code).strip() == (
        "tidings.ordering.Receiver needs numba, which is not installed: pip install 'tidings[order]'"
    )
