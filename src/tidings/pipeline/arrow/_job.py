"""The batch run in one process, without Spark: the same files, rules, kernels and tables, for logs of a laptop's size.

It leaves what a run on Spark leaves but for the partials, so every run with new files computes everything; the record
says which engine made it, and a run by the other one begins anew. Memory holds one part of the rows (some 400,000) and
the partials of all.
"""

from collections.abc import Sequence
from math import ceil
from os import PathLike
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidings.errors import InputError
from tidings.pipeline._manifest import FORMAT, Manifest, plan_run
from tidings.pipeline._options import PipelineOptions, Progress, silence, small_files, terms_of
from tidings.pipeline._partials import FAULTY, KINDS, RECEIVED, computed_of
from tidings.pipeline._result import PipelineResult, check_bad, make_result
from tidings.pipeline._storage import is_local, place_of
from tidings.pipeline._store import Run, Store, open_store
from tidings.pipeline.arrow._batches import united_kinds
from tidings.pipeline.arrow._setting import Setting, read_setting, with_unit
from tidings.pipeline.arrow._source import LARGE, Source
from tidings.pipeline.arrow._tables import tables_of
from tidings.pipeline.ingest import find_files, require_attributes
from tidings.pipeline.profiles import PARTIAL_ARRIVALS, PARTIAL_COMPONENTS, PARTIAL_PAIRS
from tidings.pipeline.profiles._brokers import arrivals_of
from tidings.pipeline.profiles._pair_sums import COUNTS
from tidings.pipeline.rows import Counting, arrow_schema

__all__ = ["run_in_process"]

ROWS_PER_PART: Final = 400_000
RECEPTIONS_PER_PART: Final = 4_000_000
ENGINE: Final = "arrow"


def run_in_process(
    traces: Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    options: PipelineOptions | None = None,
    *,
    progress: Progress | None = None,
) -> PipelineResult:
    """What `run_pipeline` does, in this process and without Spark; traces and `out` are paths on this machine.

    An InputError names what only Spark can do: a mapping, an address, a column that has to be converted from text.
    """
    chosen = PipelineOptions() if options is None else options
    report: Progress = silence if progress is None else progress
    for place in (*traces, out):
        if not is_local(place_of(place)):
            raise InputError(
                f"{place}: is not on this machine, and the engine arrow reads and writes paths only; run with "
                "--engine spark"
            )
    if chosen.mapping is not None:
        raise InputError(f"{chosen.mapping}: a mapping is read by Spark; run with --engine spark")
    result = _run(traces, open_store(out), chosen, report)
    check_bad(result, chosen.max_bad)
    return result


def _run(
    traces: Sequence[str | PathLike[str]], store: Store, options: PipelineOptions, report: Progress
) -> PipelineResult:
    report("looking for files")
    last = None if options.from_scratch else store.last()
    before = None if last is None or last[1].format != FORMAT else last[1]
    files = find_files(traces, known=() if before is None else before.files)
    terms = terms_of(options, None, files, engine=ENGINE)
    if before is not None and small_files(files) == small_files(before.files):
        # Whoever made it, an answer with nothing new stands.
        same = {**terms, "engine": before.options["engine"]}
        planned = plan_run(before, files, options=same, setting=before.setting, is_whole=True)
        if planned.is_nothing:
            return msgspec.convert({**before.result, "new_files": 0, "recomputed": None}, PipelineResult)
    run = store.begin()
    report("reading subscriptions and topology")
    setting = read_setting(files, clock_tolerance_ns=options.clock_tolerance_ns)
    require_attributes(files, setting.interests.attributes | ({options.topic} if options.topic else set()))
    manifest = None if last is None else last[1]
    planned = plan_run(manifest, files, options=terms, setting=setting.fingerprint, is_whole=True)
    source = Source(
        files=files,
        setting=setting,
        topic=options.topic,
        kinds=united_kinds(files),
        clock_tolerance_ns=options.clock_tolerance_ns,
    )
    _check_topic(source)
    report("computing units")
    counting = Counting(counted_from_ns=int(terms["warmup_ns"]), clock_tolerance_ns=options.clock_tolerance_ns)
    partials = _partials(source, counting, window_ns=options.window_ns)
    report("writing tables")
    tables = tables_of(partials, _arrivals(partials[RECEIVED]))
    places = _write(run, setting, tables)
    report("summing up")
    result = make_result(
        tables["subscriber_scores"],
        dict(zip(tables["rows"]["table"].to_pylist(), tables["rows"]["rows"].to_pylist(), strict=True)),
        *_bad_rows(tables["quarantine"]),
        places=places,
        files=len(files),
        unread_files=sum(file.fault is not None and file.rows is None for file in files),
        new_files=len(planned.new),
        recomputed=planned.reason,
    )
    record = Manifest(
        format=FORMAT,
        files=list(files),
        options=terms,
        setting=setting.fingerprint,
        result=msgspec.to_builtins(result),
    )
    store.commit(run, record, places)
    return result


def _check_topic(source: Source) -> None:
    if source.topic is not None and source.topic not in source.kinds:
        known = ", ".join(source.kinds) or "none"
        raise InputError(f"--topic {source.topic}: no event has such an attribute; there are: {known}")


def _partials(source: Source, counting: Counting, *, window_ns: int) -> dict[str, pa.Table]:
    """The partials of all units, by kind, and those of the small tables."""
    rows = sum(file.rows or 0 for file in source.files if file.table in LARGE and file.fault is None)
    setting, found = source.setting, {kind: list[pa.Table]() for kind in KINDS}
    for part in source.gathered(parts=max(1, ceil(rows / ROWS_PER_PART))):
        for kind, table in computed_of(part, setting.audience, counting, window_ns=window_ns).items():
            found[kind].append(table)
    zeros = {name: np.zeros(len(setting.subscriptions), np.int64) for name in (*COUNTS, "overtaken")}
    unmatched = setting.subscriptions.select(["subscription", "subscriber", "price"])
    for name, values in zeros.items():
        unmatched = unmatched.append_column(name, pa.array(values))
    found["pairs"].append(with_unit(unmatched, PARTIAL_PAIRS))
    for small in (setting.topology, setting.transitions):
        kept = [name for name in small.column_names if name in ("kind", "source", "target", "at_ns", "up")]
        found["components"].append(with_unit(small.select(kept), PARTIAL_COMPONENTS))
    found["quarantine"].append(setting.quarantined)
    found["rows"].append(setting.rows)
    faults = _together(FAULTY, found[FAULTY])
    if len(faults):
        found["quarantine"].append(source.found_again(faults))
    return {kind: _together(kind, tables) for kind, tables in found.items()}


def _together(kind: str, tables: Sequence[pa.Table]) -> pa.Table:
    """The partials of a kind; columns that some of them lack are NULL there."""
    schema = arrow_schema(KINDS[kind])
    return pa.concat_tables([schema.empty_table(), *tables], promote_options="default").select(schema.names)


def _arrivals(received: pa.Table) -> pa.Table:
    """The partials by slice of time, some slices at a time."""
    times = pc.sum(pc.binary_length(received["received_ns"])).as_py() or 0
    parts = max(1, ceil(times / 8 / RECEPTIONS_PER_PART))
    number = np.abs(np.asarray(received["slice"])) % parts
    found = [arrow_schema(PARTIAL_ARRIVALS).empty_table()]
    for part in range(parts):
        some = received.filter(pa.array(number == part)) if parts > 1 else received
        if len(some):
            found.append(arrivals_of(some))
    return pa.concat_tables(found)


def _write(run: Run, setting: Setting, tables: dict[str, pa.Table]) -> dict[str, str]:
    """All tables, by name, and the clean small tables beside them."""

    def write(table: pa.Table, place: str) -> None:
        Path(place).mkdir(parents=True, exist_ok=True)
        pq.write_table(table, f"{place}/part-00000.parquet")

    for name in ("subscriptions", "topology", "transitions"):
        write(getattr(setting, name), run.setting(name))
    for name, table in tables.items():
        write(table, run.table(name))
    return {name: run.table(name) for name in tables}


def _bad_rows(quarantine: pa.Table) -> tuple[int, dict[str, int]]:
    bad, by_reason = 0, dict[str, int]()
    for reasons, rows in zip(quarantine["reasons"].to_pylist(), quarantine["rows"].to_pylist(), strict=True):
        bad += rows
        for reason in reasons:
            by_reason[reason] = by_reason.get(reason, 0) + rows
    return bad, by_reason
