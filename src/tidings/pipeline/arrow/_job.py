"""The batch run in one process, without Spark: the same files, rules, kernels and tables, for logs of a laptop's size.

It leaves what a run on Spark leaves but for the partials, so every run with new files computes everything; the record
says which engine made it, and a run by the other one starts over. Memory holds one part of the rows (some 400,000) and
the partials of all.
"""

import tempfile
from collections.abc import Sequence
from math import ceil
from os import PathLike
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import InputError
from tidings.pipeline._held import write_held
from tidings.pipeline._manifest import FORMAT, Manifest, workload_of
from tidings.pipeline._options import SMALL, PipelineOptions, Progress, silence, small_files, terms_of
from tidings.pipeline._partials import FAULTY, KINDS, RECEIVED, computed_of
from tidings.pipeline._result import PipelineResult, check_bad, count_bad, make_result
from tidings.pipeline._run_store import Run, RunStore, open_store
from tidings.pipeline._storage import is_local, place_of
from tidings.pipeline.arrow._log import Log, open_log
from tidings.pipeline.arrow._small_tables import Setting, read_setting, small_partials
from tidings.pipeline.arrow._source import LARGE, Source
from tidings.pipeline.arrow._sums import sums_of
from tidings.pipeline.arrow._tables import tables_of
from tidings.pipeline.ingest import Mapping, TraceFile, find_files, load_mapping, require_attributes
from tidings.pipeline.measures import PARTIAL_ARRIVALS
from tidings.pipeline.measures._brokers import arrivals_of
from tidings.pipeline.rows import Counting, arrow_schema

__all__ = ["arrivals_by_slice", "run_in_process", "together"]

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

    An InputError names what only Spark can do: an address, a column of Parquet that has to be converted from text.
    """
    chosen = PipelineOptions() if options is None else options
    report: Progress = silence if progress is None else progress
    for place in (*traces, out):
        if not is_local(place_of(place)):
            raise InputError(
                f"{place}: is not on this machine, and the engine arrow reads and writes paths only; run with "
                "--engine spark"
            )
    if chosen.catalog is not None:
        raise InputError(f"{chosen.catalog}: a catalog belongs to a Spark session; run with --engine spark")
    with tempfile.TemporaryDirectory(prefix="tidings-") as folder:
        result = _run(traces, open_store(out), chosen, report, Path(folder))
    check_bad(result, chosen.max_bad)
    return result


def _run(
    traces: Sequence[str | PathLike[str]], store: RunStore, options: PipelineOptions, report: Progress, folder: Path
) -> PipelineResult:
    report("looking for files")
    mapping = None if options.mapping is None else load_mapping(options.mapping)
    last = None if options.from_scratch else store.last()
    before = None if last is None or last[1].format != FORMAT else last[1]
    files = find_files(traces, mapping=mapping, known=() if before is None else before.files)
    terms = terms_of(options, mapping, files, engine=ENGINE)
    if before is not None and small_files(files) == small_files(before.files):
        # Whoever made it, an answer with nothing new stands.
        same = {**terms, "engine": before.options["engine"]}
        planned = workload_of(before, files, options=same, setting=before.setting, is_whole=True)
        if planned.is_nothing:
            return msgspec.convert({**before.result, "new_files": 0, "recomputed": None}, PipelineResult)
    log = _open(files, mapping, folder, report)
    run = store.begin()
    report("reading subscriptions and topology")
    setting = read_setting(
        {table: list(log.batches(table)) for table in SMALL},
        [file for file in files if file.fault is not None],
        clock_tolerance_ns=options.clock_tolerance_ns,
    )
    require_attributes(files, setting.interests.attributes | ({options.topic} if options.topic else set()))
    manifest = None if last is None else last[1]
    planned = workload_of(manifest, files, options=terms, setting=setting.fingerprint, is_whole=True)
    source = Source(log=log, setting=setting, topic=options.topic, clock_tolerance_ns=options.clock_tolerance_ns)
    _check_topic(source)
    report("computing units")
    clocks = log.corrections
    counting = Counting(
        counted_from_ns=int(terms["warmup_ns"]),
        clock_tolerance_ns=options.clock_tolerance_ns,
        clock_low_ns=None if clocks is None else clocks.low_ns,
        clock_high_ns=None if clocks is None else clocks.high_ns,
    )
    partials = _partials(source, counting, window_ns=options.window_ns)
    report("writing tables")
    tables = tables_of(sums_of(partials, arrivals_by_slice(partials[RECEIVED])))
    places = _write(run, setting, tables)
    report("summing up")
    result = make_result(
        tables["subscriber_scores"],
        dict(zip(tables["rows"]["table"].to_pylist(), tables["rows"]["rows"].to_pylist(), strict=True)),
        *count_bad(tables["quarantine"].to_batches()),
        places=places,
        files=len(files),
        unread_files=sum(file.fault is not None and file.rows is None for file in files),
        new_files=len(planned.new),
        recomputed=planned.reason,
        clocks=None if clocks is None else clocks.summary(),
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


def _open(files: Sequence[TraceFile], mapping: Mapping | None, folder: Path, report: Progress) -> Log:
    if mapping is not None:
        report("reading the log")
    log = open_log(files, mapping, folder)
    if mapping is not None and mapping.clocks is not None:
        report("comparing clocks")
    return log.with_clocks()


def _check_topic(source: Source) -> None:
    if source.topic is not None and source.topic not in source.log.kinds:
        known = ", ".join(source.log.kinds) or "none"
        raise InputError(f"--topic {source.topic}: no event has such an attribute; there are: {known}")


def _partials(source: Source, counting: Counting, *, window_ns: int) -> dict[str, pa.Table]:
    """The partials of all units, by kind, and those of the small tables."""
    rows = source.log.rows(LARGE)
    setting, found = source.setting, {kind: list[pa.Table]() for kind in KINDS}
    for part in source.gathered(parts=max(1, ceil(rows / ROWS_PER_PART))):
        for kind, table in computed_of(part, setting.audience, counting, window_ns=window_ns).items():
            found[kind].append(table)
    for kind, some in small_partials(setting).items():
        found[kind] += some
    faults = together(FAULTY, found[FAULTY])
    if len(faults):
        found["quarantine"].append(source.found_again(faults))
    return {kind: together(kind, tables) for kind, tables in found.items()}


def together(kind: str, tables: Sequence[pa.Table]) -> pa.Table:
    """The partials of a kind; columns that some of them lack are NULL there."""
    schema = arrow_schema(KINDS[kind])
    return pa.concat_tables([schema.empty_table(), *tables], promote_options="default").select(schema.names)


def arrivals_by_slice(received: pa.Table) -> pa.Table:
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
    for name in SMALL:
        write_held(None, run.setting(name), getattr(setting, name))
    for name, table in tables.items():
        write_held(None, run.table(name), table)
    return {name: run.table(name) for name in tables}
