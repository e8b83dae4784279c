"""Measure the layout of the source: ``python scripts/rooms.py`` prints the counts, ``--list`` what they count.

A *folder* is a directory of modules; a *package* is a folder directly under ``tidings``. What starts with ``_`` is
private to the folder that it is in, and to the folders below that one. A private import names a private module or a
private name from elsewhere.

The modules and folders inside a folder form a *cycle* if they import each other, directly or over others. It is counted
by the dependencies that would have to go. Imports for type checkers only do not count.
"""

import argparse
import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grimp

SOURCE = Path(__file__).resolve().parent.parent / "src"
SMALL_LINES = 60
LONG_LINES = 700
LONG_SIGNATURE = 10


@dataclass(kw_only=True)
class Module:
    name: str
    path: Path
    text: str

    @property
    def is_face(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def folder(self) -> str:
        return self.name if self.is_face else self.name.rpartition(".")[0]

    @property
    def package(self) -> str:
        return ".".join(self.folder.split(".")[:2])

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


@dataclass(frozen=True, kw_only=True)
class Import:
    """``importer`` imports ``names`` of the module ``imported``; without names, the module itself."""

    importer: Module
    line: int
    imported: Module
    names: tuple[str, ...] = ()

    @property
    def is_private(self) -> bool:
        """Whether the module or the name is private to the imported module's folder."""
        return self.imported.name.rpartition(".")[2].startswith("_") or any(name.startswith("_") for name in self.names)

    @property
    def is_across_packages(self) -> bool:
        return self.importer.package != self.imported.package

    def __str__(self) -> str:
        path = self.importer.path.relative_to(SOURCE)
        return f"{path}:{self.line}: {self.imported.name} {', '.join(self.names)}".rstrip()


def modules(source: Path = SOURCE) -> dict[str, Module]:
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name=name, path=path, text=path.read_text())
    return found


def imports(known: dict[str, Module]) -> Iterator[Import]:
    """Every import of one of the known modules by another, also those inside functions and those for types only."""
    for module in known.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in known:
                        yield Import(importer=module, line=node.lineno, imported=known[alias.name])
            elif isinstance(node, ast.ImportFrom) and node.module in known:
                names = [alias.name for alias in node.names]
                inner = [name for name in names if f"{node.module}.{name}" in known]
                for name in inner:
                    yield Import(importer=module, line=node.lineno, imported=known[f"{node.module}.{name}"])
                if rest := tuple(name for name in names if name not in inner):
                    yield Import(importer=module, line=node.lineno, imported=known[node.module], names=rest)


def private_imports(found: Iterable[Import]) -> list[Import]:
    """Private imports from folders that are not the importer's own, nor around it, nor below it if it is a face."""
    return [
        one
        for one in found
        if one.is_private
        and not _is_within(one.importer.folder, one.imported.folder)
        and not (one.importer.is_face and _is_within(one.imported.folder, one.importer.folder))
    ]


def _is_within(folder: str, other: str) -> bool:
    return folder == other or folder.startswith(other + ".")


def cycles(known: dict[str, Module]) -> list[str]:
    """The dependencies that close a cycle inside a folder."""
    graph = grimp.build_graph("tidings", exclude_type_checking_imports=True, cache_dir=None)
    return [
        f"{importer} -> {imported}"
        for module in known.values()
        if module.is_face
        for importer, imported in sorted(graph.nominate_cycle_breakers(module.name))
    ]


def long_signatures(known: dict[str, Module]) -> list[str]:
    return [
        f"{module.path.relative_to(SOURCE)}:{node.lineno}: {node.name}"
        for module in known.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) >= LONG_SIGNATURE
    ]


def measure(known: dict[str, Module]) -> dict[str, list[str]]:
    private = private_imports(imports(known))
    bodies = [module for module in known.values() if not module.is_face]
    return {
        "imports that close a cycle inside a package": cycles(known),
        "private imports across packages": [str(one) for one in private if one.is_across_packages],
        "private imports across folders of a package": [str(one) for one in private if not one.is_across_packages],
        f"modules below {SMALL_LINES} lines": [f"{m.name} {m.lines}" for m in bodies if m.lines < SMALL_LINES],
        f"modules above {LONG_LINES} lines": [f"{m.name} {m.lines}" for m in bodies if m.lines > LONG_LINES],
        f"functions with {LONG_SIGNATURE} or more parameters": long_signatures(known),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the layout of the source.")
    parser.add_argument("--list", action="store_true", help="list what is counted")
    listed = parser.parse_args().list
    for name, items in measure(modules()).items():
        print(f"{len(items):5}  {name}")
        if listed:
            print(*(f"       {item}" for item in items), sep="\n")


if __name__ == "__main__":
    main()
