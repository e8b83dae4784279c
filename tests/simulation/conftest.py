"""Networks that the tests of the simulator share."""

from collections.abc import Callable

import pytest

from tidings.model import Network, Scenario

Make = Callable[..., Network]

MESH = """
duration = "{duration} s"
warmup = "{warmup} s"
seed = {seed}
topology = {{ kind = "random-graph", brokers = {brokers}, mean_degree = {degree} }}

[links]
slowness = {slowness}
propagation = {propagation}
loss = {loss}

[brokers]
{broker}

[[publishers]]
name = "p"
at = "{home}"
count = {publishers}
rate = "{rate} /s"
size = {{ law = "uniform", low = "1 kB", high = "9 kB" }}
{lifetime}
attributes = {{ x = {{ law = "uniform", low = 0, high = 10 }}, kind = {{ values = ["a", "b"] }} }}

[[subscribers]]
name = "s"
at = "random"
count = {subscribers}
filter = "x < {{most}} OR kind = 'a'"
parameters = {{ most = {{ law = "uniform", low = 0, high = 10 }} }}
{max_delay}

[policies]
scheduling = {scheduling}
routing = "{routing}"
expired = "{expired}"
"""

DEFAULTS: dict[str, object] = {
    "duration": 20,
    "warmup": 2,
    "seed": 1,
    "brokers": 5,
    "slowness": '{ law = "normal", mean = "40 ms/kB", sd = "15 ms/kB" }',
    "propagation": '"5 ms"',
    "loss": 0.02,
    "broker": 'service = { law = "exponential", mean = "8 ms" }\nprocessing = "1 ms"',
    "publishers": 2,
    "rate": 4,
    "lifetime": 'lifetime = { law = "uniform", low = "500 ms", high = "2 s" }',
    "subscribers": 6,
    "max_delay": 'max_delay = { law = "uniform", low = "300 ms", high = "3 s" }',
    "scheduling": '"eb"',
    "routing": "single-path",
    "expired": "drop",
}


@pytest.fixture(scope="session")
def mesh() -> Make:
    """A small mesh with everything in it; keywords change it. For several paths at once all publishers are at one
    broker."""

    def make(**changes: object) -> Network:
        values = DEFAULTS | changes
        values["home"] = "random" if values["routing"] in ("single-path", "balanced", "spread") else "b1"
        values["degree"] = min(2.5, int(str(values["brokers"])) - 1)
        return Scenario.parse(MESH.format(**values)).expand()

    return make
