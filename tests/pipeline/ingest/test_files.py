"""Which files are read, and what is said about those that cannot be."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tidings.errors import InputError
from tidings.model.trace import TABLES
from tidings.pipeline.ingest import TraceFile, find_files, require_attributes, require_readable

Write = Callable[..., Path]


def test_files_come_with_what_their_footers_say(trace: Path) -> None:
    files = find_files([trace])
    assert [file.table for file in files] == sorted(TABLES)
    by_table = {file.table: file for file in files}
    assert by_table["publications"].rows == 6
    assert by_table["publications"].least_sequence == 0
    assert by_table["publications"].greatest_sequence == 2
    assert by_table["subscriptions"].least_sequence is None
    assert all(file.fault is None for file in files)
    assert by_table["hops"].path == str(trace / "hops" / "part-0.parquet")


def test_names_of_half_written_files_are_passed_over(trace: Path, tmp_path: Path) -> None:
    before = find_files([trace])
    shutil.copy(trace / "hops" / "part-0.parquet", trace / "hops" / "_part-1.parquet")
    (trace / "hops" / ".part-0.parquet.crc").write_bytes(b"crc")
    (trace / "_checkpoint").mkdir()
    (trace / "_checkpoint" / "state.parquet").write_bytes(b"half")
    (trace / "scenario.toml").write_text("a note beside the tables is no matter")
    assert find_files([trace]) == before
    # A hidden directory above the trace is the user's choice of place, not a mark on a file.
    hidden = tmp_path / ".hidden" / "trace"
    shutil.copytree(trace, hidden)
    assert len(find_files([hidden])) == len(before)


def test_several_directories_are_one_trace_and_an_order_does_not_matter(trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.move(trace / "deliveries", other / "deliveries")
    assert find_files([trace, other]) == find_files([other, trace])
    assert {file.table for file in find_files([trace, other, trace])} == set(TABLES)
    assert len(find_files([trace, other, trace])) == len(TABLES)
    assert find_files([f"file://{trace}", other])[0].table == "deliveries"


def test_a_known_file_is_not_opened_again(trace: Path) -> None:
    known = find_files([trace])
    marked = [msgspec.structs.replace(file, rows=-1) for file in known]
    assert find_files([trace], known=marked) == marked
    stored = msgspec.json.decode(msgspec.json.encode(known), type=list[TraceFile])
    assert find_files([trace], known=stored) == known
    path = Path(known[0].path)
    path.write_bytes(path.read_bytes()[:-1])
    torn = find_files([trace], known=marked)
    assert torn[0].fault is not None
    # What could not be read is tried again, though the file looks the same: its disk may be there again.
    healed = [msgspec.structs.replace(torn[0], fault="was not there"), *torn[1:]]
    assert find_files([trace], known=healed) == torn


def test_a_truncated_file_is_a_fault_and_no_error(trace: Path) -> None:
    path = trace / "deliveries" / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:200])
    (trace / "deliveries" / "part-1.parquet").write_bytes(b"")
    faults = [file.fault for file in find_files([trace]) if file.table == "deliveries"]
    assert len(faults) == 2
    assert all(faults)


def test_a_column_that_cannot_be_read_is_a_fault(rows: dict[str, list[Any]], trace: Path, write: Write) -> None:
    schema = TABLES["deliveries"]
    number = schema.get_field_index("arrived_ns")
    some = [{**row, "arrived_ns": None} for row in rows["deliveries"]]
    write("deliveries", some, schema=schema.set(number, pa.field("arrived_ns", pa.time64("ns"))))
    (found,) = [file for file in find_files([trace]) if file.fault]
    assert "'arrived_ns' is of type time64[ns]" in (found.fault or "")
    assert found.rows == found.rows_or_one == 1
    with pytest.raises(InputError, match=r"part-0\.parquet: cannot be read \(column 'arrived_ns'.*put a _ in front"):
        require_readable([found])
    require_readable([found], ("publications",))


def test_names_that_differ_in_case_only_are_a_fault(rows: dict[str, list[Any]], trace: Path, write: Write) -> None:
    """Unless one of them is the contract's own."""
    schema = TABLES["deliveries"].append(pa.field("SEQUENCE", pa.int64()))
    write("deliveries", rows["deliveries"], schema=schema)
    assert not [file for file in find_files([trace]) if file.fault]
    number = schema.get_field_index("sequence")
    some = [{**row, "Sequence": row["sequence"]} for row in rows["deliveries"]]
    write("deliveries", some, schema=schema.set(number, pa.field("Sequence", pa.int64())))
    (found,) = [file for file in find_files([trace]) if file.fault]
    assert found.fault == "columns 'Sequence' and 'SEQUENCE' may both be 'sequence'"


NOBODY_ASKED = (pa.timestamp("ns"), pa.time64("us"), pa.map_(pa.string(), pa.int8()), pa.binary(3), pa.string())


def test_columns_that_the_contract_does_not_have_are_not_read(
    rows: dict[str, list[Any]], trace: Path, write: Write
) -> None:
    before = find_files([trace])
    for table in ("deliveries", "subscriptions", "topology"):
        schema = TABLES[table]
        for number, kind in enumerate(NOBODY_ASKED):
            schema = schema.append(pa.field(f"own-{number}", kind))
        write(table, rows[table], schema=schema)
    assert [(file.columns, file.fault) for file in find_files([trace])] == [(file.columns, None) for file in before]


def test_an_attribute_that_cannot_be_read_matters_to_those_who_ask_for_it(
    rows: dict[str, list[Any]], trace: Path, write: Write
) -> None:
    schema = TABLES["publications"]
    attributes = pa.struct([("x", pa.float64()), ("at", pa.timestamp("ns"))])
    write("publications", rows["publications"], schema=schema.set(6, pa.field("attributes", attributes)))
    (found,) = [file for file in find_files([trace]) if file.table == "publications"]
    assert (found.fault, found.left_out) == (None, {"at": "timestamp[ns]"})
    assert str(found.columns).endswith("`attributes` struct<`x`: double>")
    require_attributes([found], {"x"})
    with pytest.raises(InputError, match=r"publications/part-0\.parquet: attribute 'at' is of type timestamp\[ns\]"):
        require_attributes([found], {"x", "at"})
    only = pa.struct([("at", pa.timestamp("ns"))])
    write("publications", rows["publications"], schema=schema.set(6, pa.field("attributes", only)))
    (found,) = [file for file in find_files([trace]) if file.table == "publications"]
    assert (found.fault, list(found.left_out)) == (None, ["at"])
    assert "attributes" not in str(found.columns)


def test_attributes_that_are_no_struct_are_a_fault(rows: dict[str, list[Any]], trace: Path, write: Write) -> None:
    some = [{**row, "attributes": '{"x": 1}'} for row in rows["publications"]]
    write("publications", some, schema=TABLES["publications"].set(6, pa.field("attributes", pa.string())))
    (fault,) = [file.fault for file in find_files([trace]) if file.fault]
    assert "'attributes' is of type string, and must be a struct" in fault


def test_a_schema_from_the_future_is_refused(rows: dict[str, list[Any]], trace: Path, write: Write) -> None:
    schema = TABLES["deliveries"].with_metadata({"tidings.trace": "2"})
    path = write("deliveries", rows["deliveries"], schema=schema)
    with pytest.raises(InputError, match=r"follows version 2 .* upgrade") as caught:
        find_files([trace])
    assert str(path) in str(caught.value)


def make(path: Path, *names: str) -> None:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), r"no files of a trace here; a trace has a folder per table: publications"),
        (("deliveries/a.parquet", "publications/a.parquet"), r"no files of table 'subscriptions'.* mapping file"),
        (("deliveries/a.parquet", "subscriptions/a.parquet"), r"no files of table 'publications'.* as well"),
        (("delivery/a.parquet",), r"there is no table 'delivery'; did you mean `deliveries`\?"),
        (("hops/a.parquet", "plots/a.png"), r"there is no table 'plots'; a trace has publications.*move it away"),
        (("hops/a.csv",), r"hops/a.csv: a trace's files end in .parquet; .*mapping file"),
        (("hops.parquet",), r"hops.parquet: lies beside the tables; move it"),
        (("monday/hops/a.parquet", "tuesday/hops/a.parquet"), r"holds traces and is none; .*/monday .*/tuesday"),
    ],
)
def test_what_is_not_a_trace_is_refused(names: tuple[str, ...], message: str, tmp_path: Path) -> None:
    make(tmp_path, *names)
    with pytest.raises(InputError, match=message):
        find_files([tmp_path])


def test_a_place_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for place, message in [
        (tmp_path / "nowhere", "there is no such directory"),
        (tmp_path / "file", "is a file; give the directory"),
        (f"file://{tmp_path}/nowhere", "there is no such directory"),
        ("gopher://x/trace", "is not on this machine, and can be read with Spark only; copy or mount it"),
    ]:
        with pytest.raises(InputError, match=message):
            find_files([place])
    with pytest.raises(InputError, match="no trace given"):
        find_files([])


def test_tables_that_are_not_needed_may_be_absent(trace: Path) -> None:
    for table in ("hops", "deliveries", "transitions", "topology"):
        shutil.rmtree(trace / table)
    assert [file.table for file in find_files([trace])] == ["publications", "subscriptions"]
    shutil.rmtree(trace / "subscriptions")
    assert [file.table for file in find_files([trace], needed=())] == ["publications"]
