"""Cells: one simulation each, run as a Spark task of its own.

A cell is a setting and a seed. Its name is a digest of all that decides its result: the scenario with the setting
written into it, the seed, and the version of this package. So a result that is there already is found again whatever
sweep it was computed for, and never mistaken for that of a scenario that has changed since.

What a cell raises becomes the text of its row; it stops no other cell.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings import __version__
from tidings.model.scenario import Scenario
from tidings.pipeline.sweeps._settings import Base, Setting

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FIGURES", "RUNS", "Cell", "make_cells", "simulate_cells"]

FIGURES = {
    "published": "bigint",
    "matched": "bigint",
    "on_time": "bigint",
    "late": "bigint",
    "lost": "bigint",
    "dropped": "bigint",
    "in_flight": "bigint",
    "delivery_rate": "double",
    "earnings": "double",
    "traffic": "bigint",
    "steps": "bigint",
}
"""What the row of a cell says, as `tidings.simulation.Result` does; the time that it took is left out, since that is
the one figure which is another each time."""

SUBSCRIBER = "matched bigint, on_time bigint, late bigint, lost bigint, dropped bigint, in_flight bigint"
RUNS = (
    "cell string, error string, "
    + ", ".join(f"{name} {kind}" for name, kind in FIGURES.items())
    + f", subscribers array<struct<subscriber string, {SUBSCRIBER}, on_time_reliability double>>"
)
"""What a task returns: one row per cell, with an `error` and nothing else if it failed."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One simulation of a sweep; `number` is its place in the order of the tables."""

    number: int
    name: str
    setting: Setting
    seed: int

    def command(self, scenario: str) -> list[str]:
        """The command line that runs this cell and no other."""
        return ["tidings", "sweep", scenario, *self.setting.flags(), "--seed", str(self.seed), "--seeds", "1"]


def make_cells(base: Base, settings: Sequence[Setting], seeds: Sequence[int]) -> list[Cell]:
    """All cells, setting by setting, seed by seed."""
    cells: list[Cell] = []
    for setting in settings:
        content = json.dumps([__version__, base.table(setting)], sort_keys=True)
        for seed in seeds:
            name = hashlib.sha256(f"{content} {seed}".encode()).hexdigest()[:24]
            cells.append(Cell(number=len(cells), name=name, setting=setting, seed=seed))
    return cells


def simulate_cells(
    base: Base, cells: Sequence[Cell]
) -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    """For `mapInArrow` over the numbers 0, 1, ... of these cells: the rows of RUNS."""
    texts: dict[Setting, int] = {}
    for cell in cells:
        texts.setdefault(cell.setting, len(texts))
    scenarios = [base.text(setting) for setting in texts]
    tasks = [(cell.name, texts[cell.setting], cell.seed) for cell in cells]

    def simulate_each(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                name, text, seed = tasks[number]
                yield pa.RecordBatch.from_pylist([_row(name, scenarios[text], seed)], schema=_arrow_schema())

    return simulate_each


def _row(name: str, scenario: str, seed: int) -> dict[str, Any]:
    try:
        return {"cell": name, **_figures(scenario, seed)}
    except Exception as error:  # whatever it is, it belongs to this cell
        return {"cell": name, "error": f"{type(error).__name__}: {error}"}


def _figures(scenario: str, seed: int) -> dict[str, Any]:
    from tidings.simulation import simulate

    result = simulate(Scenario.parse(scenario, "the scenario of this cell").expand(seed))
    fields = ("matched", "on_time", "late", "lost", "dropped", "in_flight", "on_time_reliability")
    return {
        **{name: getattr(result, name) for name in FIGURES},
        "subscribers": [
            {"subscriber": subscriber, **{field: getattr(row, field) for field in fields}}
            for subscriber, row in result.subscribers.items()
        ],
    }


def _arrow_schema() -> "pa.Schema":
    import pyarrow as pa

    kinds = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}
    subscriber = [("subscriber", "string"), *(tuple(each.split()) for each in SUBSCRIBER.split(", "))]
    subscriber.append(("on_time_reliability", "double"))
    row = pa.struct([(name, kinds[kind]) for name, kind in subscriber])
    flat = [("cell", "string"), ("error", "string"), *FIGURES.items()]
    return pa.schema([*((name, kinds[kind]) for name, kind in flat), ("subscribers", pa.list_(row))])
