"""How the documentation becomes a site (`make docs`): docs/decisions/0049-documentation-site.md gives the reasons."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent

project = "Tidings"
author = "the Tidings project"
found = re.search(r'__version__ = "([^"]+)"', (ROOT / "src" / "tidings" / "__init__.py").read_text("utf-8"))
assert found is not None
version = release = found[1]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["site"]
myst_heading_anchors = 4
# Links to files outside docs/ (examples, sources) work in the repository; a site has no place for them. Diagrams in
# mermaid are drawn by what shows the repository; the site shows their text, because drawing would need the network.
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure", "myst.header"]

html_theme = "furo"
html_title = f"Tidings {version}"
html_extra_path = ["../llms.txt"]
html_copy_source = False
html_show_sphinx = False

man_pages = [("reference/cli", "tidings", "publish and subscribe with deadlines", author, 1)]
