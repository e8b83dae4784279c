"""TOML documents read strictly, with the place and the remedy in every error; and written so that they read back.

Scenarios, network files and mapping files share this package: `Source` is a text with its name, `Place` one key in it,
`decode` turns a table into a typed value, and `document_text` and `table_text` write tables.
"""

from tidings.model.documents._decoder import (
    Marker,
    Quantity,
    closest,
    decode,
    describe,
    key_written,
    parsed_quantity,
    refuse,
    suggestion,
)
from tidings.model.documents._source import FILE_BYTES_MAX, Place, Source
from tidings.model.documents._writer import document_text, table_text

__all__ = [
    "FILE_BYTES_MAX",
    "Marker",
    "Place",
    "Quantity",
    "Source",
    "closest",
    "decode",
    "describe",
    "document_text",
    "key_written",
    "parsed_quantity",
    "refuse",
    "suggestion",
    "table_text",
]
