"""All evaluations on one page: HTML that needs nothing beside it (figures are inside), or Markdown."""

import base64
import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

from tidings.errors import InputError
from tidings.experiments._all import Evaluation
from tidings.experiments._headlines import Verdict

__all__ = ["FORMATS", "check_page", "verdicts", "write_page"]

FORMATS: Final = (".html", ".md")
TITLE: Final = "Five papers, run again"
_HEADINGS: Final = ("the paper says", "where", "its figure", "ours", "does it hold?", "why not")

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2830; --paper: #fff; --line: #c8d0d6; --good: #14673a; --part: #7a4b00;
  --bad: #a3201d; --band: #f1f4f6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e9ed; --paper: #14191d; --line: #3b464e; --good: #6fd39a;
  --part: #f0b860; --bad: #ff8f88; --band: #1d252b; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--line); }
thead th { background: var(--band); }
.holds { color: var(--good); font-weight: 600; } .in-part { color: var(--part); font-weight: 600; }
.does-not-hold, .error { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0; } img { max-width: 100%; background: #fff; }
.wide { overflow-x: auto; }
nav a { margin-right: 1rem; }
@media print { body { max-width: none; } tr, figure { break-inside: avoid; } nav, details { display: none; } }
"""


def check_page(path: Path) -> None:
    """Refuse a page that could not be written, before minutes are spent on it."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: a page ends in {' or '.join(FORMATS)}; write for example {path.stem or 'page'}.html")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}; make it, or write the page elsewhere")


def write_page(evaluations: Sequence[Evaluation], path: Path, *, scale: str) -> None:
    """Write the page in the format of its name."""
    check_page(path)
    lines = _html(evaluations, scale) if path.suffix.lower() == ".html" else _markdown(evaluations, scale)
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def verdicts(evaluations: Iterable[Evaluation]) -> str:
    """How many statements hold, in words."""
    counts = Counter(headline.verdict for each in evaluations for headline in each.headlines)
    total = sum(counts.values())
    good, part, bad = (counts[verdict] for verdict in get_args(Verdict))
    words = f"Of {total} statements {good} hold, {part} hold in part, {bad} do not."
    failed = [each.name for each in evaluations if each.error is not None]
    return words + (f" Could not be run: {', '.join(failed)}." if failed else "")


def _introduction(scale: str) -> str:
    return (
        f"Every figure below was measured by `tidings reproduce all --scale {scale}`. Where a paper leaves its network "
        "open, both readings are run; a statement that is true in one of them holds in part."
    )


def _markdown(evaluations: Sequence[Evaluation], scale: str) -> Iterator[str]:
    yield from (f"# {TITLE}", "", _introduction(scale), "", verdicts(evaluations), "")
    for each in evaluations:
        yield from (f"## {each.letter}. {each.title}", "")
        if each.error is not None:
            yield from (f"Could not be run: {each.error}", "")
            continue
        yield f"| {' | '.join(_HEADINGS)} |"
        yield f"| {' | '.join('---' for _ in _HEADINGS)} |"
        for row in each.headlines:
            cells = (row.says, row.where, row.paper, row.measured, row.verdict, row.why)
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        for sentence in each.beyond:
            yield from ("", f"Beyond the paper: {sentence}")
        yield from ("", f"`tidings reproduce {each.name} --scale {scale}`, {each.seconds:.0f} s", "")


def _html(evaluations: Sequence[Evaluation], scale: str) -> Iterator[str]:
    yield f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{TITLE}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<link rel="icon" href="data:,">'
    yield f"<style>{_STYLE}</style></head><body><main><h1>{TITLE}</h1>"
    yield f"<p>{_inline(_introduction(scale))}</p><p><strong>{verdicts(evaluations)}</strong></p>"
    links = (f'<a href="#{each.name}">{each.letter}: {each.name}</a>' for each in evaluations)
    yield f'<nav aria-label="papers">{" ".join(links)}</nav>'
    for each in evaluations:
        yield from _section(each, scale)
    yield "</main></body></html>"


def _section(each: Evaluation, scale: str) -> Iterator[str]:
    yield f'<section id="{each.name}"><h2>{each.letter}. {html.escape(each.title)}</h2>'
    if each.error is not None:
        yield f'<p class="error">Could not be run: {html.escape(each.error)}</p></section>'
        return
    headings = "".join(f'<th scope="col">{heading}</th>' for heading in _HEADINGS)
    yield f'<div class="wide" tabindex="0" role="group" aria-label="Statements of paper {each.letter}"><table><thead>'
    yield f"<tr>{headings}</tr></thead><tbody>"
    for row in each.headlines:
        cells = "".join(f"<td>{_inline(text)}</td>" for text in (row.where, row.paper, row.measured))
        kind = row.verdict.replace(" ", "-")
        yield (
            f'<tr><th scope="row">{_inline(row.says)}</th>{cells}<td class="{kind}">{row.verdict}</td>'
            f"<td>{_inline(row.why)}</td></tr>"
        )
    yield "</tbody></table></div>"
    for sentence in each.beyond:
        yield f"<p>Beyond the paper: {_inline(sentence)}</p>"
    for figure in each.figures:
        path = Path(figure)
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        yield f'<figure><img alt="{html.escape(path.stem)}" src="data:image/png;base64,{data}">'
        yield f"<figcaption>{html.escape(path.stem.replace('-', ' '))}</figcaption></figure>"
    yield from _all_claims(each)
    yield f"<p>{_inline(f'`tidings reproduce {each.name} --scale {scale}`, {each.seconds:.0f} s')}</p></section>"


def _all_claims(each: Evaluation) -> Iterator[str]:
    yield f"<details><summary>All {len(each.claims):,} figures</summary><table><thead><tr>"
    yield "".join(f'<th scope="col">{heading}</th>' for heading in ("claim", "paper", "ours", "sd", "unit", "note"))
    yield "</tr></thead><tbody>"
    for claim in each.claims:
        figures = ("" if value is None else f"{value:,.4g}" for value in (claim.paper, claim.measured, claim.sd))
        cells = "".join(f"<td>{html.escape(text)}</td>" for text in (*figures, claim.unit, claim.note))
        yield f'<tr><th scope="row">{html.escape(claim.id)}</th>{cells}</tr>'
    yield "</tbody></table></details>"


def _inline(text: str) -> str:
    """Escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
