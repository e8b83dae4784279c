"""A Spark job that subscribes and publishes. Shows: format("tidings") as a source and a sink, deadlines, a checkpoint.

    tidings up examples/live/network.toml          # in another terminal
    python examples/spark_stream.py 127.0.0.1:7001

It publishes some quotes from a DataFrame, reads them back as a stream, and ends when it has all that it wants.
"""

import sys
import tempfile
from pathlib import Path

from tidings.pipeline import TidingsSource, open_session

QUOTES = [("YHOO", 17.2), ("IBM", 121.0), ("YHOO", 19.8), ("YHOO", 24.5), ("MSFT", 31.7), ("YHOO", 16.9)]


def main(address: str, folder: Path) -> int:
    """The number of quotes that came."""
    with open_session() as spark:
        spark.dataSource.register(TidingsSource)
        quotes = (
            spark.readStream.format("tidings")
            .option("address", address)
            .option("name", "quotes-job")
            .option("filter", "symbol = 'YHOO' AND price < 20")
            .option("maxDelay", "1 min")
            .option("spool", str(folder / "spool"))
            .option("metadata", "publisher")
            .load()
        )
        written = quotes.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        take = written.option("path", str(folder / "quotes")).trigger(availableNow=True)
        take.start().awaitTermination()  # from now on the broker keeps events for this job
        frame = spark.createDataFrame(QUOTES, "symbol string, price double")
        frame.write.format("tidings").mode("append").option("address", address).option("lifetime", "5 min").save()
        take.start().awaitTermination()
        came = spark.read.schema(quotes.schema).parquet(str(folder / "quotes")).orderBy("price").collect()
        for row in came:
            print(f"{row.symbol} {row.price}")
        print(f"{len(came)} quotes came")
        return len(came)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7001", Path(scratch))
