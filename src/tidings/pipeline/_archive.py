"""How the package, and what it imports, reach the processes that run Python for Spark.

On a cluster's executors an archive is unpacked in a folder of the executor's own: either this package as it is here,
with the kernels that have been compiled so far, for workers which have its dependencies; or a whole environment
(docs/guide/spark-cluster.md). Through Connect the package goes as a zip that Python imports from.
"""

import gzip
import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import tidings
from tidings.errors import ConfigurationError

__all__ = [
    "existing_environment",
    "kernels_for_workers",
    "shipped_to_executors",
    "unpackable_environment",
    "zipped_package",
]

ARCHIVES: Final = (".tar.gz", ".tgz", ".tar")
"""Spark unpacks others too, but makes nothing in them executable."""


def existing_environment(archive: Path) -> Path:
    """The archive's full path; a ConfigurationError if there is no such file, or if workers could not use it."""
    if not archive.is_file():
        raise ConfigurationError(
            f"{archive}: there is no such environment archive; docs/guide/spark-cluster.md says how to make one"
        )
    if not archive.name.endswith(ARCHIVES):
        raise ConfigurationError(
            f"{archive}: must be one of {', '.join(ARCHIVES)}, as workers could not start the Python of another "
            "archive; docs/guide/spark-cluster.md says how to make one"
        )
    return archive.resolve()


def unpackable_environment(archive: Path, folder: Path) -> Path:
    """An archive that executors unpack as it was packed: this one, or a copy in `folder` that passes for compressed.

    They unpack a compressed one with `tar`. A plain one they unpack with Java, which refuses links that lead out of it
    (as an environment's `python` does) and the entry `./` of `tar -C environment .`, and makes nothing executable.
    """
    if archive.suffix != ".tar":
        return archive
    target = folder / f"{archive.name}.gz"
    with archive.open("rb") as given, gzip.open(target, "wb", compresslevel=0) as packed:  # as long as it was
        shutil.copyfileobj(given, packed)
    return target


def shipped_to_executors(environment: Path | None, folder: Path) -> dict[str, str]:
    """What executors unpack in their own folder: an environment, or this package with the kernels compiled so far."""
    if environment is not None:
        return {"spark.archives": f"{environment}#environment"}
    package = Path(tidings.__file__).parent
    target = folder / "tidings-package.tar.gz"
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:  # a tar keeps the times that kernels are judged by
        archive.add(package, package.name, filter=lambda entry: None if entry.name.endswith(".pyc") else entry)
    return {"spark.archives": f"{target}#tidings-package", "spark.executorEnv.PYTHONPATH": "tidings-package"}


def zipped_package(folder: Path) -> Path:
    """This package's source as a zip that Python imports from."""
    package = Path(tidings.__file__).parent
    target = folder / "tidings-package.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            if "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(package.parent))
    return target


def kernels_for_workers(folder: Path) -> dict[str, str]:
    """Where workers of this machine keep compiled kernels, if they cannot do it beside the package's files."""
    if os.access(Path(tidings.__file__).parent, os.W_OK):
        return {}
    return {"spark.executorEnv.NUMBA_CACHE_DIR": str(folder / "kernels")}
