"""The large tables of a trace, or what a run has to compute of them: checked, matched and brought together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidings.errors import InputError
from tidings.pipeline.gathering._direct import Judging, fitting, read_directly
from tidings.pipeline.gathering._forms import bad_rows, found_again, with_faults
from tidings.pipeline.gathering._packing import brought_together, pack_rows
from tidings.pipeline.gathering._touching import LARGE, Touched, restricted
from tidings.pipeline.ingest import Mapping, TraceFile, check_rows, read_table
from tidings.pipeline.interest import Matcher, ship, with_matches

if TYPE_CHECKING:
    from tidings.pipeline._setting import Setting

__all__ = ["Source"]

TOPIC: Final = "topic"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows of these files; if `touched` is given, only those of touched units, which `units` is the place of.

    `topic` is the attribute that topics are told by; if it is None, `topic` where events have it.
    """

    spark: SparkSession
    files: Sequence[TraceFile]
    mapping: Mapping | None
    setting: "Setting"
    topic: str | None
    clock_tolerance_ns: int
    touched: Touched | None
    units: str

    def gathered(self, *, partitions: int) -> DataFrame:
        """All rows as PACKED, those of a unit in one partition."""
        direct: list[TraceFile] = []
        packed: list[DataFrame] = []
        for table in LARGE:
            own = [file for file in self.files if file.table == table]
            fit = fitting(own, topic=self.topic or TOPIC) if self.mapping is None else []
            direct += fit
            others = [file for file in own if file not in fit]
            if self.mapping is not None or any(file.fault is None for file in others):
                # With a mapping all files: events that are known by their ids are numbered over the publications.
                rows = self._matched(table, self._checked(table, others if self.mapping is None else self.files))
                packed.append(pack_rows(with_faults(table, rows), partitions=partitions))
        if direct or not packed:
            packed.append(read_directly(self.spark, direct, self._judging(), partitions=partitions))
        return brought_together(reduce(DataFrame.unionAll, packed), partitions=partitions)

    def found_again(self, faults: DataFrame) -> DataFrame:
        """The rows that these FAULTS are of, as rows of the quarantine (QUARANTINED)."""
        return found_again(faults, {table: self._matched(table, self._checked(table, self.files)) for table in LARGE})

    def found_bad(self, doubted: DataFrame) -> DataFrame:
        """The suspect rows (DOUBTED) as rows of the quarantine (QUARANTINED), by reading their files again."""
        places = {tuple(row) for row in doubted.select("table", "file").distinct().toLocalIterator()}
        found = []
        for table in LARGE:
            files = [file for file in self.files if (table, file.path) in places]
            if files:
                found.append(bad_rows(table, self._checked(table, files)))
        return reduce(DataFrame.unionAll, found)

    def check_topic(self) -> None:
        """An InputError if topics are to be told by an attribute that no event has."""
        known = self._attributes()
        if self.topic is not None and self.topic not in known:
            shown = ", ".join(known) or "none"
            raise InputError(f"--topic {self.topic}: no event has such an attribute; there are: {shown}")

    def _attributes(self) -> list[str]:
        kind = self._raw("publications", self.files).schema["attributes"].dataType
        return list(getattr(kind, "names", ()))

    def _raw(self, table: str, files: Sequence[TraceFile]) -> DataFrame:
        return read_table(self.spark, table, files, mapping=self.mapping)

    def _checked(self, table: str, files: Sequence[TraceFile]) -> DataFrame:
        rows = self._raw(table, files)
        return check_rows(
            table,
            rows if self.touched is None else restricted(rows, self.touched),
            clock_tolerance_ns=self.clock_tolerance_ns,
            brokers=self.setting.brokers,
            subscriptions=self.setting.subscriptions,
        )

    def _matched(self, table: str, checked: DataFrame) -> DataFrame:
        """Publications with `matches` and `topic`; other tables as they are."""
        if table != "publications":
            return checked
        wanted = self.topic or TOPIC
        has_topic = wanted in getattr(checked.schema["attributes"].dataType, "names", ())
        topic = fn.col("attributes").getField(wanted).cast("string") if has_topic else fn.lit(None).cast("string")
        return with_matches(checked.withColumn("topic", topic), self.setting.interests)

    def _judging(self) -> Judging:
        setting, touched = self.setting, self.touched
        return Judging(
            brokers=setting.broker_names,
            audience=ship(self.spark, setting.audience),
            matcher=ship(self.spark, Matcher(setting.interests)),
            attributes=setting.interests.attributes,
            topic=self.topic or TOPIC,
            clock_tolerance_ns=self.clock_tolerance_ns,
            units=None if touched is None else self.units,
            least_sequence=0 if touched is None else touched.least_sequence,
            greatest_sequence=-1 if touched is None else touched.greatest_sequence,
        )
