"""Ingest: files of a trace in, clean tables and a quarantine of bad rows out.

    files = find_files(["trace"])                                  # Parquet, or anything with a mapping file
    rows = read_table(spark, "deliveries", files)                  # the contract's columns, _file, _faults, _raw
    checked = check_rows("deliveries", rows, brokers=..., subscriptions=...)    # reasons array<string>
    good, bad = split("deliveries", checked)                       # the contract's columns; QUARANTINE

`REASONS` says what each reason means; the reasons that need the other rows of an event (unknown-publication,
not-matching, duplicate) are given where these rows meet, by the constants, KEYS and `first_of` from here.
"""

from tidings.pipeline.ingest._checks import (
    KEYS,
    OUTCOMES,
    TIME_NS_MAX,
    TIMES_IN_ORDER,
    check_rows,
    delay_is_negative,
    first_of,
    known_brokers,
    quarantine_rows,
    split,
    unreadable_files,
)
from tidings.pipeline.ingest._converting import shown_path
from tidings.pipeline.ingest._files import (
    NEEDED,
    TraceFile,
    find_files,
    require_attributes,
    require_readable,
    warmup_of,
)
from tidings.pipeline.ingest._mapping import Mapping, load_mapping
from tidings.pipeline.ingest._reading import by_kind, read_table
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
    "TIMES_IN_ORDER",
    "TIME_NS_MAX",
    "UNKNOWN_BROKER",
    "UNKNOWN_PUBLICATION",
    "UNKNOWN_SUBSCRIPTION",
    "UNREADABLE_FILE",
    "WRONG_TYPE",
    "Mapping",
    "TraceFile",
    "by_kind",
    "check_rows",
    "delay_is_negative",
    "find_files",
    "first_of",
    "known_brokers",
    "load_mapping",
    "quarantine_rows",
    "read_table",
    "require_attributes",
    "require_readable",
    "shown_path",
    "split",
    "unreadable_files",
    "warmup_of",
]
