"""The navigation of the site has every page once, and llms.txt lists what the navigation has."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.fixture
def llms():
    spec = importlib.util.spec_from_file_location("llms_txt", ROOT / "scripts" / "llms_txt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation(llms):
    listed = [file for _, files in llms.sections() for file in files]
    assert len(listed) == len(set(listed))
    pages = {file for file in DOCS.rglob("*.md") if "site" not in file.relative_to(DOCS).parts}
    assert set(listed) == pages - {DOCS / "index.md"}


def test_llms_txt_is_as_generated(llms):
    written = (ROOT / "llms.txt").read_text("utf-8")
    assert written == llms.page(), "write it anew: python scripts/llms_txt.py > llms.txt"


@pytest.mark.full
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason="Sphinx is not installed: pip install 'tidings[docs]'")
    pytest.importorskip("myst_parser", reason="MyST is not installed: pip install 'tidings[docs]'")
    pytest.importorskip("furo", reason="Furo is not installed: pip install 'tidings[docs]'")
    for builder, made in (("html", "searchindex.js"), ("man", "tidings.1")):
        command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", builder, str(DOCS), str(tmp_path / builder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / builder / made).exists()
