"""The scenario: read from TOML once, expanded to a network as often as there are seeds."""

import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from tidings.errors import FilterWarning, InputError, ScenarioError
from tidings.model.scenario._decoding import decode
from tidings.model.scenario._doubts import doubtful_filters
from tidings.model.scenario._expansion import expand
from tidings.model.scenario._network import Network
from tidings.model.scenario._notebook import scenario_html
from tidings.model.scenario._schema import BrokerDefaults, Document, LinkDefaults
from tidings.model.scenario._source import Place, Source
from tidings.model.scenario._toml import document_text

__all__ = ["Scenario"]


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

    def _repr_html_(self) -> str:
        """What a notebook shows: the run, who publishes, who subscribes, as written."""
        return scenario_html(self._source.table(), self.document.title or self.place)

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
