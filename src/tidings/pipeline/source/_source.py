"""The data source itself, as Spark's Python Data Source API wants it."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidings.errors import ConfigurationError
from tidings.pipeline.source._batch import TidingsReader
from tidings.pipeline.source._columns import checked_schema, schema_of_filter
from tidings.pipeline.source._options import batch_options, sink_options, stream_options, wanted
from tidings.pipeline.source._sink import TidingsStreamWriter, TidingsWriter
from tidings.pipeline.source._stream import TidingsStreamReader

__all__ = ["TidingsSource"]


class TidingsSource(DataSource):
    """`spark.dataSource.register(TidingsSource)`, and Spark reads and writes `format("tidings")`."""

    @classmethod
    def name(cls) -> str:
        return "tidings"

    def schema(self) -> StructType:
        terms = wanted(self.options)
        return schema_of_filter(terms.filter, terms.metadata)

    def reader(self, schema: StructType) -> TidingsReader:
        return TidingsReader(batch_options(self.options), checked_schema(schema))

    def streamReader(self, schema: StructType) -> TidingsStreamReader:  # noqa: N802 (Spark's name)
        return TidingsStreamReader(stream_options(self.options), checked_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> TidingsWriter:
        _require_append(overwrite)
        return TidingsWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TidingsStreamWriter:  # noqa: N802
        _require_append(overwrite)
        return TidingsStreamWriter(sink_options(self.options), schema)


def _require_append(overwrite: bool) -> None:
    if overwrite:
        raise ConfigurationError("events that were published cannot be overwritten: write with .mode('append')")
