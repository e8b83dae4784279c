"""Networks that fail, which the tests here share."""

from collections.abc import Callable

import msgspec
import pytest

from tidings.model import Network, Scenario

Make = Callable[..., Network]

MESH = """
duration = "{duration} s"
warmup = "{warmup} s"
seed = {seed}
topology = {topology}

[links]
slowness = {slowness}
propagation = {propagation}
loss = {loss}
failures = {link_failures}

[brokers]
{broker}
failures = {broker_failures}

[[publishers]]
name = "p"
at = "random"
count = {publishers}
rate = "{rate} /s"
size = {{ law = "uniform", low = "1 kB", high = "9 kB" }}
{lifetime}
attributes = {{ x = {{ law = "uniform", low = 0, high = 10 }} }}

[[subscribers]]
name = "s"
at = "random"
count = {subscribers}
filter = "x < {{most}}"
parameters = {{ most = {{ law = "uniform", low = 2, high = 10 }} }}
{max_delay}

[policies]
scheduling = {scheduling}
expired = "{expired}"
faults = {faults}
"""

DEFAULTS: dict[str, object] = {
    "duration": 400,
    "warmup": 20,
    "seed": 1,
    "topology": '{ kind = "random-graph", brokers = 5, mean_degree = 2.8 }',
    "slowness": '"0 ms/kB"',
    "propagation": '"0 ms"',
    "loss": 0.0,
    "broker": "",
    "link_failures": '{ availability = 0.9, period = "60 s" }',
    "broker_failures": '{ availability = 0.8, period = "100 s" }',
    "publishers": 2,
    "rate": 0.2,
    "lifetime": 'lifetime = "30 s"',
    "subscribers": 6,
    "max_delay": "",
    "expired": "drop",
    "scheduling": '"fifo"',
    "faults": '"bypass+buffer"',
}


@pytest.fixture(scope="session")
def mesh() -> Make:
    """A small mesh that fails all the time; keywords change it. Tables are as in paper D, unless said otherwise."""

    def make(*, tables: str = "volatile", **changes: object) -> Network:
        network = Scenario.parse(MESH.format(**(DEFAULTS | changes))).expand()
        return soft(network) if tables == "volatile" else network

    return make


def soft(network: Network) -> Network:
    """The same with tables that a crash empties, as in paper D."""
    policies = network.policies
    faults = msgspec.structs.replace(policies.faults, tables="volatile")
    return msgspec.structs.replace(network, policies=msgspec.structs.replace(policies, faults=faults))


PATH = """
duration = "{days} d"
seed = {seed}
topology = {{ kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }}

[links]
failures = {{ availability = 0.99, period = "60000 s" }}

[brokers]
failures = {{ availability = 0.92, period = "60000 s" }}

[[broker]]
name = "b"
failures = {{ availability = 0.94, period = "60000 s" }}

[[broker]]
name = "c"
failures = {{ availability = 0.91, period = "60000 s" }}

[[publishers]]
name = "p"
at = "a"
interval = "180 s"
lifetime = "3600 s"

[[subscribers]]
name = "s"
at = "c"
filter = "TRUE"

[policies]
faults = {faults}
"""


@pytest.fixture(scope="session")
def path() -> Make:
    """The path with check values: brokers .92, .94 and .91, links .99, a period of 60,000 s, a lifetime of 3,600 s."""

    def make(*, faults: str, seed: int = 1, days: float = 140) -> Network:
        return soft(Scenario.parse(PATH.format(faults=faults, seed=seed, days=days)).expand())

    return make
