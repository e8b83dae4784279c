"""The optional parts of an installation: which packages each has, and the line that installs it.

`pip install tidings` is the client. Everything else is an extra (pyproject.toml). This module is the one place that
turns a missing package into an error with the remedy.
"""

from importlib.util import find_spec
from typing import Final

from tidings.errors import ConfigurationError

__all__ = ["EXTRAS", "install_line", "missing_extra", "missing_package"]

_ORDER: Final = ("numba", "numpy", "scipy")
_BROKER: Final = ("typer", "rich", "cryptography", *_ORDER, "lmdb", "prometheus_client", "pyarrow")
_LAB: Final = (*_BROKER, "matplotlib", "networkx", "topohub")
EXTRAS: Final = {
    "cli": ("typer", "rich"),
    "order": _ORDER,
    "broker": _BROKER,
    "lab": _LAB,
    "spark": (*_LAB, "pandas", "pyspark"),
}
"""The packages to import with each extra, the smallest extra first. A broker also runs without `uvloop`."""

_OF_PARTS: Final = {"cli": "cli", "ordering": "order", "live": "broker", "protocol": "broker"}
"""The extra for a part of Tidings; `lab` for all others."""
_BROUGHT: Final = {"llvmlite": "numba", "grpc": "pyspark", "py4j": "pyspark", "google": "pyspark"}
"""Packages that come with another one."""


def install_line(extra: str) -> str:
    """The line to type."""
    return f"pip install 'tidings[{extra}]'"


def missing_package(error: ImportError) -> str | None:
    """The optional package that is not installed, if that is what the error is about."""
    top = (error.name or "").partition(".")[0]
    return top if top in EXTRAS["spark"] or top in _BROUGHT else None


def missing_extra(error: ImportError, part: str, what: str) -> Exception:
    """The error to raise in place of `error` where `what` needs a package that is not installed.

    `part` is an extra, or a package of Tidings such as `tidings.live`. An error about anything else is returned as it
    is.
    """
    package = missing_package(error)
    if package is None:
        return error
    extra = part if part in EXTRAS else _OF_PARTS.get((part + ".").split(".")[1], "lab")
    if _BROUGHT.get(package, package) not in EXTRAS[extra]:
        extra = next(name for name, packages in EXTRAS.items() if _BROUGHT.get(package, package) in packages)
    if "." in (error.name or "") and find_spec(package) is not None:
        return ConfigurationError(f"{what} needs a later {package} ({error}): pip install --upgrade 'tidings[{extra}]'")
    return ConfigurationError(f"{what} needs {package}, which is not installed: {install_line(extra)}")
