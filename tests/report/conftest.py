"""Two networks that were simulated and went through the pipeline, once for all tests of reports."""

import fcntl
import os
from pathlib import Path

import pytest

from tidings.model.scenario import Scenario
from tidings.simulation import simulate

ROOT = Path(__file__).parent.parent.parent

HOSTILE_BROKER = "<script>alert(1)</script>"
HOSTILE_SUBSCRIBER = "\"><img src=x onerror='alert(2)'>&amp;"

STAR = f"""
title = "One cause for each arm </title><script>alert(3)</script>"
duration = "400 s"
seed = 4
[topology]
kind = "explicit"
brokers = ["hub", "busy", "behind", "one", "two", "far", "fails", '{HOSTILE_BROKER}', "fine"]
links = [["hub", "busy"], ["hub", "behind"], ["hub", "one"], ["one", "two"], ["two", "far"], ["hub", "fails"],
         ["hub", '{HOSTILE_BROKER}'], ["hub", "fine"]]
[links]
propagation = "1 ms"
[[link]]
source = "hub"
target = "behind"
bandwidth = "40 kbit/s"
[[link]]
source = "hub"
target = "one"
propagation = "20 ms"
[[link]]
source = "one"
target = "two"
propagation = "20 ms"
[[link]]
source = "two"
target = "far"
propagation = "20 ms"
[[link]]
source = "hub"
target = '{HOSTILE_BROKER}'
loss = 0.2
[[broker]]
name = "busy"
service = {{ distribution = "exponential", mean = "180 ms" }}
[[broker]]
name = "fails"
failures = {{ availability = 0.8, period = "20 s" }}
[[publishers]]
name = "p"
at = "hub"
rate = "5 /s"
size = {{ distribution = "uniform", low = "200 B", high = "800 B" }}
attributes = {{ x = 1 }}
[[subscribers]]
name = "waits"
at = "busy"
filter = "x = 1"
max_delay = "800 ms"
[[subscribers]]
name = "creeps"
at = "behind"
filter = "x = 1"
max_delay = "150 ms"
[[subscribers]]
name = "hurries"
at = "far"
filter = "x = 1"
max_delay = "45 ms"
[[subscribers]]
name = "misses"
at = "fails"
filter = "x = 1"
max_delay = "1 s"
[[subscribers]]
name = '''{HOSTILE_SUBSCRIBER}'''
at = '{HOSTILE_BROKER}'
filter = "x = 1"
max_delay = "1 s"
[[subscribers]]
name = "happy"
at = "fine"
filter = "x = 1"
max_delay = "1 s"
[[subscribers]]
name = "deaf"
at = "fine"
filter = "x = 2"
[policies]
expired = "forward"
scheduling = "fifo"
faults = {{ scheme = "periodic", refresh = "1 s" }}
"""


def profiled(request: pytest.FixtureRequest, text: str, name: str) -> Path:
    """Simulate a scenario and run the pipeline over its trace; the directory of the run.

    Once for all processes of a test run: the first one computes it, and the others wait for the result. The tables are
    the same with Spark (tests/pipeline compares both engines).
    """
    from tidings.pipeline import run_in_process

    base: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "made").exists():
            simulate(Scenario.parse(text).expand(), out=place / "trace")
            run_in_process([place / "trace"], place / "scores")
            (place / "made").touch()
    return place / "scores"


@pytest.fixture(scope="session")
def quick_text() -> str:
    text = (ROOT / "examples" / "quickstart.toml").read_text("utf-8")
    return text.replace('duration = "10 min"', 'duration = "60 s"').replace('warmup = "30 s"', 'warmup = "5 s"')


@pytest.fixture(scope="session")
def quick(request: pytest.FixtureRequest, quick_text: str) -> Path:
    """The quickstart, a minute of it."""
    return profiled(request, quick_text, "quick")


@pytest.fixture(scope="session")
def star(request: pytest.FixtureRequest) -> Path:
    """A hub whose arms have one fault each, and names that contain markup."""
    return profiled(request, STAR, "star")
