"""`tidings filter`: see how a filter is understood, compare two, try one on an event."""

import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli._output import Json, print_json, reporting

if TYPE_CHECKING:
    from tidings.model.filters import Filter

__all__ = ["app"]

app = typer.Typer(
    help="Explain a filter, compare two filters, or test one on an event.",
    epilog="Try:  tidings filter explain \"symbol = 'YHOO' AND NOT price < 20\"",
    no_args_is_help=True,
)

_ANSWERS = {True: "yes", False: "no", None: "unknown"}
_TRUTH = {True: "true", False: "false", None: "unknown"}


def _text(metavar: str, help_text: str) -> Any:
    return typer.Argument(metavar=metavar, help=help_text, show_default=False)


FilterText = Annotated[str, _text("FILTER", "A filter in SQL or in bracketed triples.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a filter that would give a warning.")]


@app.command(
    epilog=(
        "Try:\n\ntidings filter explain \"symbol = 'YHOO' AND volume > 1000000\"\n\n"
        "tidings filter explain \"\\[symbol,=,'YHOO'],\\[volume,>,1000000]\"\n\n"
        'tidings filter explain "NOT (price BETWEEN 10 AND 20 OR halted)" --json'
    )
)
def explain(text: FilterText, strict: Strict = False, json: Json = False) -> None:
    """Show a filter in normal form: its clauses, the tests that an index can use, and the rest."""
    with reporting(json=json):
        from tidings.model.filters import filter_warnings

        subject = _parse(text, strict=strict)
        form = subject.normal_form()
        if json:
            doubts = [str(warning) for warning in filter_warnings(subject)]
            print_json({"filter": text, "normal_form": form, "warnings": doubts})
            return
        typer.echo(f"filter      {form.canonical}")
        typer.echo(f"attributes  {', '.join(form.attributes) or 'none'}")
        for line in form.lines():
            typer.echo(line)


@app.command(
    epilog=(
        'Try:\n\ntidings filter covers "price > 10" "price > 20 AND symbol = \'YHOO\'"\n\n'
        'The answer is "unknown" where neither a proof nor a counterexample is found.'
    )
)
def covers(
    wide: Annotated[str, _text("F", "The covering filter.")],
    narrow: Annotated[str, _text("G", "The covered filter.")],
    json: Json = False,
) -> None:
    """Decide whether F accepts every event that G accepts: yes, no or unknown."""
    with reporting(json=json):
        answer = _parse(wide).covers(_parse(narrow))
        if json:
            print_json({"covers": answer, "answer": _ANSWERS[answer], "f": wide, "g": narrow})
        else:
            typer.echo(_ANSWERS[answer])


@app.command(
    name="test",
    epilog=(
        'Try:\n\ntidings filter test "symbol = \'YHOO\' AND price > 20" --event \'{"symbol": "YHOO", "price": 25.5}\''
    ),
)
def try_event(
    text: FilterText,
    event: Annotated[str, typer.Option("--event", metavar="JSON", help="The event's attributes, as a JSON object.")],
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Evaluate a filter on one event: true, false, or unknown if an attribute is missing."""
    with reporting(json=json):
        attributes = _attributes(event)
        truth = _parse(text, strict=strict).evaluate(attributes)
        if json:
            print_json({"filter": text, "event": attributes, "result": truth, "accepted": truth is True})
        else:
            typer.echo(_TRUTH[truth])


def _parse(text: str, *, strict: bool = False) -> "Filter":
    from tidings.model.filters import Filter, filter_warnings

    subject = Filter.parse(text, strict=strict)
    for warning in filter_warnings(subject):
        warnings.warn(warning, stacklevel=2)
    return subject


def _attributes(text: str) -> dict[str, Any]:
    import msgspec

    from tidings.errors import EventError

    try:
        attributes = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        message = f'--event is not JSON: {error}; write for example \'{{"symbol": "YHOO", "price": 25.5}}\''
        raise EventError(message) from None
    if not isinstance(attributes, dict):
        raise EventError('--event is not a JSON object; write for example \'{"symbol": "YHOO", "price": 25.5}\'')
    return attributes
