"""Ingest: files of a trace in, clean tables and a quarantine of bad rows out.

    files = find_files(["trace"])                                  # Parquet, or anything with a mapping file
    rows = read_table(spark, "deliveries", files)                  # the contract's columns, _file, _faults, _raw
    checked = check_rows("deliveries", rows, brokers=..., subscriptions=...)    # reasons array<string>
    good, bad = split("deliveries", checked)                       # the contract's columns; QUARANTINE

`REASONS` says what each reason means; the reasons that need the other rows of an event (unknown-publication,
not-matching, duplicate) are given where these rows meet, by the constants, KEYS and `first_of` from here.

Names load on first use: most of this needs no Spark.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.pipeline.ingest._casts import shown_path
    from tidings.pipeline.ingest._checks import (
        check_rows,
        delay_is_negative,
        first_of,
        known_brokers,
        quarantine_rows,
        split,
    )
    from tidings.pipeline.ingest._files import (
        NEEDED,
        TraceFile,
        find_files,
        require_attributes,
        require_readable,
        unreadable_files,
        warmup_of,
    )
    from tidings.pipeline.ingest._inspection import Inspection, inspect_log
    from tidings.pipeline.ingest._mapping import Mapping, load_mapping
    from tidings.pipeline.ingest._reader import frame_rows, no_rows, read_table, with_clocks
    from tidings.pipeline.ingest._reasons import (
        AMBIGUOUS_EVENT,
        BAD_FILTER,
        BAD_VALUE,
        DUPLICATE,
        JSON_OPTIONS,
        MALFORMED,
        MISSING_ID,
        NEGATIVE_DELAY,
        NOT_MATCHING,
        QUARANTINE,
        QUARANTINE_SCHEMA,
        REASONS,
        UNKNOWN_BROKER,
        UNKNOWN_PUBLICATION,
        UNKNOWN_SUBSCRIPTION,
        UNREADABLE_FILE,
        WRONG_TYPE,
    )
    from tidings.pipeline.ingest._rules import KEYS, OUTCOMES, RULES, TIME_NS_MAX

__all__ = [
    "AMBIGUOUS_EVENT",
    "BAD_FILTER",
    "BAD_VALUE",
    "DUPLICATE",
    "JSON_OPTIONS",
    "KEYS",
    "MALFORMED",
    "MISSING_ID",
    "NEEDED",
    "NEGATIVE_DELAY",
    "NOT_MATCHING",
    "OUTCOMES",
    "QUARANTINE",
    "QUARANTINE_SCHEMA",
    "REASONS",
    "RULES",
    "TIME_NS_MAX",
    "UNKNOWN_BROKER",
    "UNKNOWN_PUBLICATION",
    "UNKNOWN_SUBSCRIPTION",
    "UNREADABLE_FILE",
    "WRONG_TYPE",
    "Inspection",
    "Mapping",
    "TraceFile",
    "check_rows",
    "delay_is_negative",
    "find_files",
    "first_of",
    "frame_rows",
    "inspect_log",
    "known_brokers",
    "load_mapping",
    "no_rows",
    "quarantine_rows",
    "read_table",
    "require_attributes",
    "require_readable",
    "shown_path",
    "split",
    "unreadable_files",
    "warmup_of",
    "with_clocks",
]

__getattr__, __dir__ = lazily(__name__)
