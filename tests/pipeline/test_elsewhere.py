"""The pipeline with systems of others: an S3 server, tables of Delta and Iceberg, and a Kafka broker.

Jars come through Spark's own resolver, once, and stay in its cache. A test is skipped where its jars cannot be had (a
release of Spark is often newer than what others have built for it), or its server: `pip install 'moto[server]'` is one
for S3, and Kafka runs from its jars. `TIDINGS_TEST_JARS=a.jar,b.jar` gives the connector's jars in place of packages.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.test_cluster import SMALL, running

from tidings.model.scenario import Scenario
from tidings.pipeline import run_in_process
from tidings.rehearsal._ports import free_ports
from tidings.simulation import simulate

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'tidings[spark]'")
pytestmark = [pytest.mark.spark, pytest.mark.full]

SPARK = Path(pyspark.__file__).parent
RELEASE = ".".join(pyspark.__version__.split(".")[:2])
HADOOP = next(re.findall(r"api-(.*)\.jar", path.name)[0] for path in SPARK.glob("jars/hadoop-client-api-*.jar"))
S3A = f"org.apache.hadoop:hadoop-aws:{HADOOP}"
DELTA = f"io.delta:delta-spark_{RELEASE}_2.13:4.4.0"
ICEBERG = f"org.apache.iceberg:iceberg-spark-runtime-{RELEASE}_2.13:1.12.0"
CATALOG = "org.xerial:sqlite-jdbc:3.49.1.0"
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
BROKER = "org.apache.kafka:kafka_2.13:4.1.1"
JOB_WAIT_S = 1_800
SERVER_WAIT_S = 60
BEGIN = """
import json, sys
from tidings.pipeline import PipelineOptions, open_session, run_pipeline, table_paths
given = json.loads(sys.argv[1])
with open_session(master="local[1]", memory="2g", extra=given["conf"]) as spark:
"""


def job(body: str, conf: dict[str, str], **given: object) -> dict[str, object]:
    """What this Python code prints as JSON, in a process and a session of its own."""
    indented = "\n".join(f"    {line}" for line in body.strip().splitlines())
    command = [sys.executable, "-c", BEGIN + indented, json.dumps({"conf": conf, **given})]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=JOB_WAIT_S, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return found


def jars(*packages: str) -> dict[str, str]:
    """The setting that brings these packages; the test is skipped where they cannot be had."""
    if os.environ.get("TIDINGS_TEST_JARS"):
        return {"spark.jars": os.environ["TIDINGS_TEST_JARS"]}
    return {"spark.jars": ",".join(paths_of(*packages))}


def paths_of(*packages: str) -> list[str]:
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[1]", "--packages", ",".join(packages)]
    command += ["--class", "org.apache.spark.deploy.Nothing", "--verbose", "spark-internal"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=JOB_WAIT_S, env=environment, check=False)
    found = re.findall(r"\(spark\.jars,(.*)\)", ran.stdout + ran.stderr)
    if not found:
        pytest.skip(f"cannot be had from the repositories of Spark's resolver: {', '.join(packages)}")
    return [path.removeprefix("file://") for path in found[-1].split(",")]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("elsewhere") / "trace"
    simulate(Scenario.parse(SMALL).expand(3), out=out)
    return out


@pytest.fixture(scope="module")
def truth(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    result = run_in_process([trace], tmp_path_factory.mktemp("truth"))
    return [result.matched, result.on_time, result.late, result.lost]


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[str]:
    """The address of a bucket on an S3 server of this machine."""
    server = shutil.which("moto_server")
    if server is None:
        pytest.skip("no S3 server: pip install 'moto[server]'")
    (port,) = free_ports(1)
    with running(tmp_path, "s3", server, "-H", "127.0.0.1", "-p", str(port), port=port):
        address = f"http://127.0.0.1:{port}"
        put(f"{address}/bucket", b"")
        yield address


def put(address: str, data: bytes) -> None:
    # Without a type it would be taken for a form, and read as one.
    request = urllib.request.Request(address, data, {"Content-Type": "application/octet-stream"}, method="PUT")
    with urllib.request.urlopen(request, timeout=SERVER_WAIT_S):
        pass


IN_A_BUCKET = """
from tidings.pipeline._storage import storage_of
from tidings.pipeline.streaming import WatchOptions, watch_trace
ran = [run_pipeline(spark, ["s3a://bucket/trace"], "s3a://bucket/scores") for _ in range(2)]
watched = watch_trace(
    spark, "s3a://bucket/trace", "s3a://bucket/watched", WatchOptions(is_once=True), listener=lambda report: None
)
rows = spark.read.parquet(table_paths("s3a://bucket/scores", spark)["subscriber_scores"]).count()
storage = storage_of("s3a://bucket/commits", spark)
path, ended = "s3a://bucket/commits/1.json", []

def late():  # taken when the object is open for writing: then another one writes it
    ended.append(storage.write_new(path, b"first"))
    yield from b"late"

ended.append(storage.write_new(path, late()))
totals = [[each.matched, each.on_time, each.late, each.lost] for each in (*ran, watched)]
print(json.dumps({"totals": totals, "new": ran[1].new_files, "rows": rows, "ended": ended,
                  "held": storage.read(path).decode()}))
"""


def test_a_trace_and_its_scores_in_a_bucket(bucket: str, trace: Path, truth: list[int]) -> None:
    for file in trace.rglob("*.parquet"):
        put(f"{bucket}/bucket/trace/{file.relative_to(trace).as_posix()}", file.read_bytes())
    conf = {"spark.hadoop.fs.s3a.endpoint": bucket, "spark.hadoop.fs.s3a.path.style.access": "true"}
    found = job(IN_A_BUCKET, {**jars(S3A), **conf})
    assert found["totals"] == [truth] * 3
    assert (found["new"], found["rows"]) == (0, 2)
    assert (found["ended"], found["held"]) == ([True, False], "first")


IN_A_CATALOG = """
from tidings.pipeline import scores
found, differing = None, []
for _ in range(2):  # made, and replaced
    options = PipelineOptions(catalog=given["schema"], table_format=given["format"])
    found = run_pipeline(spark, [given["trace"]], given["out"], options)
for name, place in table_paths(given["out"], spark).items():
    theirs, ours = spark.read.parquet(place), spark.table(f"{given['schema']}.{name}")
    if theirs.schema != ours.schema or sorted(map(repr, theirs.collect())) != sorted(map(repr, ours.collect())):
        differing.append(name)
views = [spark.table(f"{given['schema']}.{name}").count() for name in ("on_time_by_subscription", "slow_links")]
spark.sql(f"CREATE SCHEMA {given['schema']}_trace")
tables = ("publications", "subscriptions", "deliveries", "hops", "topology")
for name in tables:
    rows = spark.read.parquet(f"{given['trace']}/{name}")
    rows.write.format(given["format"]).saveAsTable(f"{given['schema']}_trace.{name}")
read = scores.of(**{name: spark.table(f"{given['schema']}_trace.{name}") for name in tables})["subscriber_scores"]
sums = list(read.selectExpr("sum(matched)", "sum(on_time)", "sum(late)", "sum(lost)").head())
print(json.dumps({"totals": [[found.matched, found.on_time, found.late, found.lost], sums], "views": views,
                  "differing": differing}))
"""


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_tables_of_delta_and_iceberg(format: str, trace: Path, truth: list[int], tmp_path: Path) -> None:
    lake = "spark.sql.catalog.lake"
    settings = {
        "delta": {
            **jars(DELTA),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        },
        "iceberg": {
            **jars(ICEBERG, CATALOG),
            lake: "org.apache.iceberg.spark.SparkCatalog",
            f"{lake}.type": "jdbc",
            f"{lake}.uri": f"jdbc:sqlite:{tmp_path}/lake.db",
            f"{lake}.jdbc.schema-version": "V1",
            f"{lake}.warehouse": str(tmp_path / "warehouse"),
        },
    }[format]
    schema = {"delta": "overlay", "iceberg": "lake.overlay"}[format]
    found = job(IN_A_CATALOG, settings, schema=schema, format=format, trace=str(trace), out=str(tmp_path / "out"))
    assert found == {"totals": [truth, truth], "views": [2, 1], "differing": []}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of a Kafka broker that is its own controller."""
    path = ":".join([*paths_of(BROKER), *map(str, SPARK.glob("jars/scala-library-*.jar"))])  # Spark leaves that out
    port, other = free_ports(2)
    listeners = {"PLAINTEXT": port, "CONTROLLER": other}
    settings = tmp_path / "server.properties"
    settings.write_text(f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{other}
listeners={",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={tmp_path}/logs
offsets.topic.replication.factor=1
num.partitions=2
""")
    java = ["java", "-Xmx384m", "-cp", path]
    formatting = [*java, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(settings)]
    subprocess.run(formatting, check=True, capture_output=True)
    with running(tmp_path, "kafka", *java, "kafka.Kafka", str(settings), port=port):
        yield f"127.0.0.1:{port}"


FROM_TOPICS = """
from tidings.pipeline.streaming import WatchOptions, watch_trace
tables = ("subscriptions", "topology", "publications", "hops", "deliveries")
place, ran = f"kafka://{given['broker']}/overlay", []

def send(table, condition="TRUE"):
    rows = spark.read.parquet(f"{given['trace']}/{table}").where(condition).selectExpr("to_json(struct(*)) AS value")
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", given["broker"])
    writer.option("topic", f"overlay.{table}").save()

def watch():
    return watch_trace(spark, place, given["watched"], WatchOptions(is_once=True), listener=lambda report: None)

for table in tables[:2]:
    send(table)
for condition in ("sequence < 300", "sequence >= 300"):
    for table in tables[2:]:
        send(table, condition)
    ran += [run_pipeline(spark, [place], given["out"]), watch()]
again = run_pipeline(spark, [place], given["out"])
totals = [[each.matched, each.on_time, each.late, each.lost] for each in (*ran[2:], again)]
print(json.dumps({"totals": totals, "recomputed": ran[2].recomputed, "bad": again.bad, "new": again.new_files,
                  "half": [each.matched for each in ran[:2]]}))
"""


def test_topics_are_counted_as_they_grow(broker: str, trace: Path, truth: list[int], tmp_path: Path) -> None:
    places = {"out": str(tmp_path / "out"), "watched": str(tmp_path / "watched")}
    found = job(FROM_TOPICS, jars(CONNECTOR), broker=broker, trace=str(trace), **places)
    assert found["totals"] == [truth] * 3
    assert found["half"] == [600, 600]
    assert (found["recomputed"], found["bad"], found["new"]) == (None, 0, 0)
