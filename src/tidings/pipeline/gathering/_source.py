"""The large tables of a trace, or what a run has to compute of them: checked, matched and brought together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from tidings.errors import InputError
from tidings.pipeline.gathering._forms import found_again, with_faults
from tidings.pipeline.gathering._packing import brought_together, pack_rows
from tidings.pipeline.gathering._touching import LARGE, Touched, restricted
from tidings.pipeline.ingest import Mapping, TraceFile, check_rows, read_table
from tidings.pipeline.interest import with_matches

if TYPE_CHECKING:
    from tidings.pipeline._setting import Setting

__all__ = ["Source"]

TOPIC: Final = "topic"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows of these files; if `touched` is given, only those of touched units.

    `topic` is the attribute that topics are told by; if it is None, `topic` where events have it.
    """

    spark: SparkSession
    files: Sequence[TraceFile]
    mapping: Mapping | None
    setting: "Setting"
    topic: str | None
    clock_tolerance_ns: int
    touched: Touched | None

    def gathered(self, *, partitions: int) -> DataFrame:
        """All rows as PACKED, those of a unit in one partition."""
        packed = [
            pack_rows(table, with_faults(table, self._matched(table, self._checked(table))), partitions=partitions)
            for table in LARGE
        ]
        return brought_together(reduce(DataFrame.unionAll, packed), partitions=partitions)

    def found_again(self, faults: DataFrame) -> DataFrame:
        """The rows that these FAULTS are of, as rows of the quarantine (QUARANTINED)."""
        return found_again(faults, {table: self._matched(table, self._checked(table)) for table in LARGE})

    def check_topic(self) -> None:
        """An InputError if topics are to be told by an attribute that no event has."""
        known = self._attributes()
        if self.topic is not None and self.topic not in known:
            shown = ", ".join(known) or "none"
            raise InputError(f"--topic {self.topic}: no event has such an attribute; there are: {shown}")

    def _attributes(self) -> list[str]:
        kind = self._raw("publications").schema["attributes"].dataType
        return list(getattr(kind, "names", ()))

    def _raw(self, table: str) -> DataFrame:
        return read_table(self.spark, table, self.files, mapping=self.mapping)

    def _checked(self, table: str) -> DataFrame:
        rows = self._raw(table)
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
        return with_matches(checked.withColumn("topic", self._topic(checked)), self.setting.interests)

    def _topic(self, checked: DataFrame) -> Column:
        kinds, wanted = checked.schema["attributes"].dataType, self.topic or TOPIC
        if not isinstance(kinds, StructType) or wanted not in kinds.names:
            return fn.lit(None).cast("string")
        value = fn.col("attributes").getField(wanted)
        # One whose files disagree about its kind has a field for each, of which one has the value.
        inner = getattr(kinds[wanted].dataType, "names", None)
        return fn.coalesce(*(value.getField(kind).cast("string") for kind in inner)) if inner else value.cast("string")
