"""Scenarios that several rooms of the tests use."""

__all__ = ["SMALL"]

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
