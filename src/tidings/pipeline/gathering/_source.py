"""The large tables of a trace, or what a run has to compute of them: checked, matched and brought together."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from tidings.errors import InputError
from tidings.pipeline.gathering._forms import found_again, to_gather, unit_columns
from tidings.pipeline.gathering._touched_units import LARGE, Touched, restricted
from tidings.pipeline.ingest import check_rows
from tidings.pipeline.interest import attributes_read, with_matches
from tidings.pipeline.rows import OWN

if TYPE_CHECKING:
    from tidings.pipeline._small_tables import Setting

__all__ = ["Source"]

TOPIC: Final = "topic"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows that `read` gives of each large table; if `touched` is given, only those of touched units.

    `topic` is the attribute whose values are the topics; if it is None, `topic` where events have it.
    """

    read: Callable[[str], DataFrame]
    setting: "Setting"
    topic: str | None
    clock_tolerance_ns: int
    touched: Touched | None = None

    def gathered(self, *, partitions: int) -> DataFrame:
        """All rows in the columns of GATHERED, with `attributes` in place of `matches`; those of a unit in one
        partition, those without an event anywhere."""
        checked = {table: self._checked(table) for table in LARGE}
        published = checked["publications"].withColumn("topic", self._topic(checked["publications"]))
        read = attributes_read(published, self.setting.interests)
        rows = reduce(
            DataFrame.unionAll,
            (to_gather(table, one, read) for table, one in {**checked, "publications": published}.items()),
        )
        anywhere = fn.xxhash64(*(name for name, kind in OWN.items() if kind == "bigint"))
        return rows.repartition(partitions, *unit_columns(anywhere))

    def found_again(self, faults: DataFrame) -> DataFrame:
        """The rows that these FAULTS are of, as rows of the quarantine (QUARANTINED)."""
        return found_again(faults, {table: self._matched(table, self._checked(table)) for table in LARGE})

    def check_topic(self) -> None:
        """An InputError if no event has the attribute that is to be the topic."""
        known = self._attributes()
        if self.topic is not None and self.topic not in known:
            shown = ", ".join(known) or "none"
            raise InputError(f"--topic {self.topic}: no event has such an attribute; there are: {shown}")

    def _attributes(self) -> list[str]:
        kind = self.read("publications").schema["attributes"].dataType
        return list(getattr(kind, "names", ()))

    def _checked(self, table: str) -> DataFrame:
        rows = self.read(table)
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
