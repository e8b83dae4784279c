"""The trace contract: what it says, and that it survives Parquet."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidings import InputError
from tidings.model.trace import TABLES, check_schema, publications


@pytest.mark.parametrize("table", TABLES)
def test_every_table_fits_its_own_contract_after_parquet(table: str, tmp_path: Path) -> None:
    schema = publications({"symbol": "string"}) if table == "publications" else TABLES[table]
    pq.write_table(schema.empty_table(), tmp_path / "part.parquet")
    read = pq.read_schema(tmp_path / "part.parquet")
    check_schema(table, read)
    assert read.metadata[b"tidings.trace"] == b"1"


@pytest.mark.parametrize("table", TABLES)
def test_times_are_whole_nanoseconds_and_nullable_fields_say_what_null_means(table: str) -> None:
    for field in TABLES[table]:
        if field.name.endswith("_ns"):
            assert field.type == pa.int64()
        assert field.metadata[b"meaning"]
        assert field.nullable == (b"NULL" in field.metadata[b"meaning"])


def test_attributes_are_a_struct_by_name() -> None:
    schema = publications({"symbol": "string", "price": "number", "volume": "whole", "halted": "boolean"})
    content = schema.field("attributes").type
    assert [(f.name, f.type) for f in content] == [
        ("symbol", pa.string()), ("price", pa.float64()), ("volume", pa.int64()), ("halted", pa.bool_()),
    ]  # fmt: skip
    check_schema("publications", schema)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match="no table 'hop'"):
        check_schema("hop", TABLES["hops"])
    without = pa.schema([field for field in TABLES["deliveries"] if field.name != "arrived_ns"])
    with pytest.raises(InputError, match="'deliveries' has no field 'arrived_ns'"):
        check_schema("deliveries", without)
    at = TABLES["hops"].get_field_index("sequence")
    with pytest.raises(InputError, match="'sequence' is of type string, not int64"):
        check_schema("hops", TABLES["hops"].set(at, pa.field("sequence", pa.string())))
    with pytest.raises(InputError, match="version 99"):
        check_schema("hops", TABLES["hops"].with_metadata({"tidings.trace": "99"}))
