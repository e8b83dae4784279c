"""Names of a package that load on first use (PEP 562), so that importing it costs no more than what is asked of it.

A package lists its public names once, as imports below `if TYPE_CHECKING:`, for people and type checkers; `lazily`
reads the same list. Python 3.15 has lazy imports of its own, which then take the place of this module.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

from tidings.extras import missing_extra

__all__ = ["lazily"]


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, for the names that its source imports below `if TYPE_CHECKING:`."""

    @cache
    def homes() -> dict[str, str]:
        return dict(_declared(package))

    def load(name: str) -> Any:
        home = homes().get(name) if name[:2] != "__" else None
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            # A name that the package imports from itself is one of its modules.
            value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        except ModuleNotFoundError as error:
            raise missing_extra(error, package, f"{package}.{name}") from error
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(homes())


def _declared(package: str) -> Iterator[tuple[str, str]]:
    """The public names with their modules, as the package's source declares them for type checkers."""
    loader = getattr(sys.modules[package].__spec__, "loader", None)
    source = loader.get_source(package) if loader is not None else None
    assert source is not None, f"{package}: its names are declared in its source, which is not there"
    for block in ast.parse(source).body:
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            for line in block.body:
                if isinstance(line, ast.ImportFrom):
                    yield from ((each.asname or each.name, line.module or "") for each in line.names)
