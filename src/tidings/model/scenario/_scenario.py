"""The scenario: read from TOML once, expanded to a network as often as there are seeds."""

import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidings.errors import FilterWarning, InputError, ScenarioError
from tidings.model.documents import Place, Source, decode, document_text
from tidings.model.frames import Column, arrow_table, html_page, html_table, pandas_frame
from tidings.model.scenario._doubts import doubtful_filters
from tidings.model.scenario._expansion import expand
from tidings.model.scenario._network import Network
from tidings.model.scenario._schema import BrokerDefaults, Document, LinkDefaults

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Scenario"]

_RUN: Final = ("duration", "warmup", "seed", "topology", "links", "brokers", "policies")
_GROUPS: Final = {
    "publishers": ("name", "at", "count", "per_broker", "rate", "interval", "size", "lifetime", "attributes"),
    "subscribers": ("name", "at", "count", "per_broker", "filter", "max_delay", "price"),
}


class Scenario:
    """A scenario document that has been read and checked; `document` holds it as written."""

    def __init__(self, document: Document, source: Source) -> None:
        self.document = document
        self._source = source

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Scenario":
        """Read a scenario file; a ScenarioError names the file, the line, the key and the remedy."""
        return cls._read(Source.read(Path(path)))

    @classmethod
    def parse(cls, text: str, place: str = "<scenario>") -> "Scenario":
        """Read a scenario from a text; `place` is what errors call it."""
        return cls._read(Source(text, place))

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], place: str = "<dict>") -> "Scenario":
        """Read a scenario from a dict with the keys of a file; an error names the key."""
        try:
            text = document_text(table)
        except InputError as error:
            raise ScenarioError(str(error), place=place) from None
        return cls._read(Source(text, place, has_lines=False))

    def to_toml(self) -> str:
        """The scenario as a file: the text that it was read from, or one that reads back to the same."""
        return self._source.text

    @property
    def place(self) -> str:
        """The name of the file, or of the text."""
        return self._source.name

    def expand(self, seed: int | None = None) -> Network:
        """Make every random choice by the seed (the scenario's own unless given) and return the network.

        A filter that hardly says what was meant gives a FilterWarning.
        """
        if seed is not None and seed < 0:
            raise ScenarioError(f"seed {seed} is negative; give a whole number of 0 or more", place=self.place)
        network = expand(self.document, self._source.root, self.document.seed if seed is None else seed)
        for warning in self.warnings(network):
            warnings.warn(warning, stacklevel=2)
        return network

    def warnings(self, network: Network) -> tuple[FilterWarning, ...]:
        """What is doubtful about the filters of this scenario, of which `network` is an expansion."""
        return doubtful_filters(self.document, self._source.root, network)

    def __eq__(self, other: object) -> bool:
        return self.document == other.document if isinstance(other, Scenario) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._source.text)

    def __repr__(self) -> str:
        return f"Scenario({self.place!r})"

    def to_arrow(self) -> "pa.Table":
        """One row per group of publishers or subscribers, with its keys as written; `expand` gives single clients."""
        return arrow_table(self._columns())

    def to_pandas(self) -> "pd.DataFrame":
        """The same as a pandas frame."""
        return pandas_frame(self._columns())

    def _repr_html_(self) -> str:
        """The run and the groups of clients, as written."""
        table = self._source.table()
        parts = [html_table(("", ""), [(key, _shown(table[key])) for key in _RUN if key in table])]
        for name, columns in _GROUPS.items():
            groups = table.get(name, ())
            used = [key for key in columns if any(key in group for group in groups)]
            if used:
                rows = [[_shown(group.get(key, "")) for key in used] for group in groups]
                parts.append(f"<h5>{name}</h5>{html_table(used, rows)}")
        return html_page(self.document.title or self.place, *parts)

    def _columns(self) -> dict[str, Column]:
        table = self._source.table()
        groups = [(kind, group) for kind in _GROUPS for group in table.get(kind, ())]
        keys = dict.fromkeys(key for columns in _GROUPS.values() for key in columns)
        found = {"kind": Column("text", [kind for kind, _ in groups])}
        for key in keys:
            found[key] = Column("text", [_shown(group[key]) if key in group else None for _, group in groups])
        return found

    @classmethod
    def _read(cls, source: Source) -> "Scenario":
        table = source.table()
        if not table:
            source.root.fail(
                'nothing is written here; a scenario needs at least `duration = "10 min"` and a [topology]'
            )
        document = decode(table, Document, source.root)
        _check(document, source.root)
        return cls(document, source)


def _shown(value: Any) -> str:
    """A value of the document as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return str(value)


def _failures(document: Document, root: Place) -> list[tuple[Any, Place]]:
    """Every place that says how something fails."""
    written: list[tuple[LinkDefaults | BrokerDefaults, Place]] = [
        (document.links, root / "links"),
        (document.brokers, root / "brokers"),
    ]
    written += [(item, root / "link" / number) for number, item in enumerate(document.link)]
    written += [(item, root / "broker" / number) for number, item in enumerate(document.broker)]
    return [(item.failures, place / "failures") for item, place in written if item.failures not in (None, "never")]


def _check(document: Document, root: Place) -> None:
    sections: list[tuple[Any, Place]] = [
        (document, root),
        (document.links, root / "links"),
        (document.policies, root / "policies"),
        (document.policies.scheduling, root / "policies" / "scheduling"),
        (document.policies.faults, root / "policies" / "faults"),
    ]
    for name in ("link", "publishers", "subscribers"):
        sections += [(item, root / name / number) for number, item in enumerate(getattr(document, name))]
    sections += _failures(document, root)
    for section, place in sections:
        for key, message in section.checks():
            for step in filter(None, key.split(".")):
                place = place / step
            place.fail(message)
    for name in ("publishers", "subscribers"):
        seen: dict[str, int] = {}
        for number, group in enumerate(getattr(document, name)):
            if group.name in seen:
                (root / name / number / "name").fail(
                    f"there is already a group {group.name!r}; give this one another name"
                )
            seen[group.name] = number
