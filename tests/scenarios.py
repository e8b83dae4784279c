"""Scenarios that several rooms of the tests use."""

__all__ = ["BACKBONE", "SMALL"]

SMALL = """
duration = "2 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
links = { bandwidth = "1 Mbit/s" }
[[publishers]]
name = "p"
at = "a"
rate = "50 /s"
[[subscribers]]
name = "s"
at = "b"
filter = "TRUE"
"""
"""Two brokers, two seconds: some trace, whatever is in it."""

BACKBONE = """
duration = "{duration}"
topology = {topology}
[links]
slowness = {{ distribution = "normal", mean = "40 ms/kB", sd = "10 ms/kB" }}
[brokers]
processing = "1 ms"
[[publishers]]
name = "p"
at = "random"
count = 6
rate = "{rate}"
size = {{ distribution = "uniform", low = "1 kB", high = "9 kB" }}
lifetime = "20 s"
attributes = {{ x = {{ distribution = "uniform", low = 0, high = 10 }} }}
[[subscribers]]
name = "s"
at = "random"
count = 60
filter = "x < {{most}}"
parameters = {{ most = {{ distribution = "uniform", low = 0, high = 10 }} }}
max_delay = [{{ delay = "1 s", price = 5 }}, {{ delay = "3 s", price = 2 }}, {{ delay = "15 s", price = 1 }}]
"""
"""Subscribers with deadlines and prices all over some topology; how busy it is depends on the rate."""
