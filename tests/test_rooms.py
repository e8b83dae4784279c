"""What is private to a package is used nowhere else (cycles are the concern of import-linter)."""

import runpy
from pathlib import Path

ROOMS = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "rooms.py"))


def test_no_package_imports_private_names_of_another() -> None:
    found = ROOMS["private_imports"](ROOMS["imports"](ROOMS["modules"]()))
    assert [str(one) for one in found if one.is_across_packages] == []
