"""Why a row is set aside: the reasons, and the table of rows that were.

A bad row is never dropped and never stops a run: it goes to the quarantine with every reason that applies to it. The
reasons that need only the row (and small tables beside it) are found while reading and by `check_rows`; those that need
the other rows of an event (unknown-publication, not-matching, duplicate) where these meet.
"""

from typing import Final

import pyarrow as pa

__all__ = [
    "AMBIGUOUS_EVENT",
    "BAD_FILTER",
    "BAD_VALUE",
    "DUPLICATE",
    "JSON_OPTIONS",
    "MALFORMED",
    "MISSING_ID",
    "NEGATIVE_DELAY",
    "NOT_MATCHING",
    "QUARANTINE",
    "QUARANTINE_SCHEMA",
    "REASONS",
    "TOO_LATE",
    "UNKNOWN_BROKER",
    "UNKNOWN_PUBLICATION",
    "UNKNOWN_SUBSCRIPTION",
    "UNREADABLE_FILE",
    "WRONG_TYPE",
]

UNREADABLE_FILE: Final = "unreadable-file"
MALFORMED: Final = "malformed"
WRONG_TYPE: Final = "wrong-type"
MISSING_ID: Final = "missing-id"
BAD_VALUE: Final = "bad-value"
BAD_FILTER: Final = "bad-filter"
NEGATIVE_DELAY: Final = "negative-delay"
UNKNOWN_BROKER: Final = "unknown-broker"
UNKNOWN_SUBSCRIPTION: Final = "unknown-subscription"
AMBIGUOUS_EVENT: Final = "ambiguous-event"
UNKNOWN_PUBLICATION: Final = "unknown-publication"
NOT_MATCHING: Final = "not-matching"
DUPLICATE: Final = "duplicate"
TOO_LATE: Final = "too-late"

REASONS: Final = {
    UNREADABLE_FILE: "the file cannot be read: truncated, or a field of the contract in a type that cannot be read",
    MALFORMED: "the line is not a row of its format: not JSON, or more or fewer fields than the header",
    WRONG_TYPE: "a value is not of its field's type",
    MISSING_ID: "a field that is never NULL has no value, or the file has no such column",
    BAD_VALUE: "a value is outside its range: a negative size, an unknown outcome, a NaN attribute",
    BAD_FILTER: "the subscription's filter is not in the filter language",
    NEGATIVE_DELAY: "something is over before it began, by more than the clock tolerance",
    UNKNOWN_BROKER: "a broker that the topology does not have",
    UNKNOWN_SUBSCRIPTION: "a delivery to an unknown subscription, or to one that is in the quarantine itself",
    AMBIGUOUS_EVENT: "an id that several publishers have sent, in a row that does not say which of them",
    UNKNOWN_PUBLICATION: "a hop or delivery of an event that was never published (or that is in the quarantine itself)",
    NOT_MATCHING: "a delivery of an event that its subscription does not match, or outside its lifetime",
    DUPLICATE: "the same publication, hop, delivery, subscription or component again; the first is kept",
    TOO_LATE: "a row of an event that a watch had closed (--hold); a run from scratch counts it",
}
"""Every reason and what it means."""

QUARANTINE: Final = "table string, file string, reasons array<string>, row string, rows bigint"
"""The table of bad rows; `row` is the row as JSON, as it was read, or the fault of a file that cannot be read. `rows`
is 1, or as many as such a file has by its footer (1 if not even that can be read)."""

QUARANTINE_SCHEMA: Final = pa.schema(
    [
        ("table", pa.string()),
        ("file", pa.string()),
        ("reasons", pa.list_(pa.string())),
        ("row", pa.string()),
        ("rows", pa.int64()),
    ]
)
"""The same as Arrow has it."""

JSON_OPTIONS: Final = {"ignoreNullFields": "false"}
"""A missing value is shown as null in a row that is set aside, as it may be the very reason."""
