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
    from tidings.pipeline.ingest._checks import (
        check_rows,
        delay_is_negative,
        first_of,
        known_brokers,
        quarantine_rows,
        split,
    )
    from tidings.pipeline.ingest._converting import shown_path
    from tidings.pipeline.ingest._files import (
        NEEDED,
        TraceFile,
        find_files,
        require_attributes,
        require_readable,
        unreadable_files,
        warmup_of,
    )
    from tidings.pipeline.ingest._mapping import Mapping, load_mapping
    from tidings.pipeline.ingest._reading import read_table, with_clocks
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
    "Mapping",
    "TraceFile",
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
    "with_clocks",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "AMBIGUOUS_EVENT": "_reasons",
        "BAD_FILTER": "_reasons",
        "BAD_VALUE": "_reasons",
        "DUPLICATE": "_reasons",
        "JSON_OPTIONS": "_reasons",
        "KEYS": "_rules",
        "MALFORMED": "_reasons",
        "MISSING_ID": "_reasons",
        "Mapping": "_mapping",
        "NEEDED": "_files",
        "NEGATIVE_DELAY": "_reasons",
        "NOT_MATCHING": "_reasons",
        "OUTCOMES": "_rules",
        "QUARANTINE": "_reasons",
        "QUARANTINE_SCHEMA": "_reasons",
        "REASONS": "_reasons",
        "RULES": "_rules",
        "TIME_NS_MAX": "_rules",
        "TraceFile": "_files",
        "UNKNOWN_BROKER": "_reasons",
        "UNKNOWN_PUBLICATION": "_reasons",
        "UNKNOWN_SUBSCRIPTION": "_reasons",
        "UNREADABLE_FILE": "_reasons",
        "WRONG_TYPE": "_reasons",
        "check_rows": "_checks",
        "delay_is_negative": "_checks",
        "find_files": "_files",
        "first_of": "_checks",
        "known_brokers": "_checks",
        "load_mapping": "_mapping",
        "quarantine_rows": "_checks",
        "read_table": "_reading",
        "require_attributes": "_files",
        "require_readable": "_files",
        "shown_path": "_converting",
        "split": "_checks",
        "unreadable_files": "_files",
        "warmup_of": "_files",
        "with_clocks": "_reading",
    },
)
