"""Small networks with exactly one thing wrong, shared by the tests of this room."""

import pytest

from tidings.model.scenario import Network, Scenario

CHAIN = """
seed = 4
duration = "20 min"
warmup = "20 s"
topology = { kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }
"""

SCENARIOS = {
    # The line b - c is asked for 1.2 times what it can carry.
    "overloaded link": CHAIN
    + """
links = { bandwidth = "400 kbit/s", propagation = "5 ms" }
link = [{ source = "b", target = "c", bandwidth = "80 kbit/s" }]
publishers = [{ name = "p", at = "a", rate = "12 /s", size = "1 kB", lifetime = "2 s", attributes = { x = 1 } }]
subscribers = [
    { name = "near", at = "a", filter = "x = 1", max_delay = "12 ms" },
    { name = "far", at = "c", filter = "x = 1" },
]
policies = { scheduling = "fifo" }
""",
    # Alarms wait behind bulk that has time.
    "mixed deadlines": CHAIN
    + """
links = { bandwidth = "80 kbit/s", propagation = "5 ms" }
publishers = [
    { name = "quick", at = "a", rate = "2 /s", size = "200 B", lifetime = "400 ms", attributes = { x = 1 } },
    { name = "bulk", at = "a", rate = "3 /s", size = "2 kB", lifetime = "60 s", attributes = { x = 2 } },
]
subscribers = [
    { name = "s", at = "b", filter = "x = 1" },
    { name = "t", at = "b", filter = "x = 2" },
]
policies = { scheduling = "fifo" }
""",
    # Brokers crash, and subscriptions are merely issued anew.
    "crashes": """
seed = 4
duration = "10 d"
topology = { kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }
links = { propagation = "5 ms" }
broker = [{ name = "b", failures = { availability = 0.95, period = "3 h" } }]
publishers = [{ name = "p", at = "a", rate = "1 /min", lifetime = "3 h", attributes = { x = 1 } }]
subscribers = [{ name = "near", at = "a", filter = "x = 1" }, { name = "s", at = "c", filter = "x = 1" }]
policies = { faults = "periodic" }
""",
    # Two ways of 130 ms, and a deadline of 200 ms.
    "impossible deadline": CHAIN
    + """
links = { propagation = "130 ms" }
publishers = [
    { name = "p", at = "a", rate = "2 /s", attributes = { x = 1 } },
    { name = "q", at = "c", rate = "2 /s", attributes = { x = 1 } },
]
subscribers = [
    { name = "s17", at = "c", filter = "x = 1", max_delay = "200 ms" },
    { name = "s18", at = "a", filter = "x = 1", max_delay = "200 ms" },
]
""",
    # A broker that needs 108 % of its time.
    "busy broker": CHAIN
    + """
brokers = { service = { distribution = "exponential", mean = "12 ms" } }
publishers = [{ name = "p", at = "a", rate = "90 /s", lifetime = "2 s", attributes = { x = 1 } }]
subscribers = [{ name = "s", at = "a", filter = "x = 1" }]
""",
}


def make(name: str) -> Network:
    return Scenario.parse(SCENARIOS[name]).expand()


@pytest.fixture
def overloaded() -> Network:
    return make("overloaded link")


@pytest.fixture
def mixed() -> Network:
    return make("mixed deadlines")


@pytest.fixture
def crashes() -> Network:
    return make("crashes")


@pytest.fixture
def too_far() -> Network:
    return make("impossible deadline")


@pytest.fixture
def busy() -> Network:
    return make("busy broker")
