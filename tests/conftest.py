"""What all tests share: one Spark session, started only if a test asks for it."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A local Spark session: one core, one shuffle partition, no UI, bound to this machine only."""
    pytest.importorskip("pyspark.sql", reason="PySpark is not installed: pip install 'tidings[spark]'")
    from tidings.pipeline._session import open_session

    single = {
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        # Jobs of tests are small: the JVM's second compiler would cost more than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    with open_session(master="local[1]", app_name="tidings-tests", memory="2g", extra=single) as session:
        yield session
