"""`tidings examples`: the example files of an installation, copied to where one can change them."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from tidings.cli._output import Json, print_json, reporting

__all__ = ["EPILOG", "examples", "examples_directory"]

EPILOG = "Try:\n\ntidings examples\n\ntidings up examples/live/network.toml"


def examples(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to copy them to.")] = Path("examples"),
    json: Json = False,
) -> None:
    """Copy the example scenarios, networks and programs to a directory.

    An existing directory is left unchanged.
    """
    with reporting(json=json):
        from tidings.errors import InputError

        if directory.exists():
            raise InputError(f"{directory} exists: give another directory, for example `tidings examples my-examples`")
        shutil.copytree(examples_directory(), directory, ignore=shutil.ignore_patterns("__pycache__", "network-store"))
        files = sorted(str(path) for path in directory.rglob("*") if path.is_file())
        if json:
            print_json({"directory": str(directory), "files": files})
        else:
            typer.echo(f"{len(files)} files in {directory}; {directory / 'README.md'} explains each of them")


def examples_directory() -> Path:
    """The examples inside the installed package; in a source tree, those beside `src`."""
    import tidings

    package = Path(tidings.__file__).parent
    inside = package / "examples"
    return inside if inside.is_dir() else package.parent.parent / "examples"
