"""The list of all pages for language models (llmstxt.org), from docs/index.md: python scripts/llms_txt.py > llms.txt"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LONGEST = 160
"""A longer description is cut at a word."""

SUMMARY = """\
# Tidings

> Publish/subscribe that arrives on time, in Python: filters in SQL, a deadline for each subscription, brokers that send
> first what can still be on time, predictions and plans of on-time shares, and a Spark pipeline that computes them from
> the logs of any broker.

`pip install tidings` is the client (`tidings.connect`); `tidings[broker]`, `tidings[lab]` and `tidings[spark]` add the
rest.
"""


def page() -> str:
    """The whole file."""
    parts = [SUMMARY, "## Start\n", _line(ROOT / "README.md"), _line(ROOT / "examples" / "README.md"), ""]
    for caption, files in sections():
        parts += [f"## {caption}\n", *(_line(file) for file in files), ""]
    return "\n".join(parts).rstrip() + "\n"


def sections() -> Iterator[tuple[str, list[Path]]]:
    """The navigation of the site: captions with their pages, each page once."""
    seen = set[Path]()
    for block in re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text("utf-8"), re.DOTALL):
        caption = re.search(r":caption: (.*)", block)
        files = list[Path]()
        for entry in (line for line in block.splitlines() if line and not line.startswith(":")):
            found = sorted(DOCS.glob(f"{entry}.md"))
            files += [file for file in found if file not in seen and file not in files]
        seen.update(files)
        yield (caption[1] if caption else "Pages"), files


def _line(file: Path) -> str:
    text = file.read_text("utf-8")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    name = title[1] if title else file.stem
    return f"- [{name}]({file.relative_to(ROOT)}){_description(text)}"


def _description(text: str) -> str:
    """The first sentence of the first paragraph, if there is one before anything else."""
    below = (
        re.split(r"^# .+$", text, maxsplit=1, flags=re.MULTILINE)[-1].lstrip("\n").removeprefix("**The question.** ")
    )
    paragraph = below.split("\n\n", 1)[0]
    if not paragraph or paragraph[0] in "#|`-!>1 ":
        return ""
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))
    sentence = re.split(r"(?<=[.?])\s", plain)[0].rstrip(":")
    return f": {sentence if len(sentence) <= LONGEST else sentence[:LONGEST].rsplit(' ', 1)[0] + ' ...'}"


if __name__ == "__main__":
    print(page(), end="")
