"""Three small scenarios with failures and deadlines, which simulator, protocol and rehearsal must agree about."""

from pathlib import Path
from typing import Final

__all__ = ["DISTANT", "ORDERED", "SCENARIOS"]

RING: Final = (Path(__file__).parents[2] / "examples" / "rehearsal.toml").read_text("utf-8")
"""Broker and links that fail, stored events, first in, first out."""

NARROW: Final = """
title = "A narrow line with two prices"
seed = 5
duration = "4 min"
warmup = "5 s"
topology = { kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }

[links]
propagation = "40 ms"

[[link]]
source = "b"
target = "c"
slowness = "40 ms/kB"
failures.up = { distribution = "uniform", low = "30 s", high = "70 s" }
failures.down = { distribution = "uniform", low = "12 s", high = "20 s" }

[[publishers]]
name = "feed"
at = "a"
rate = "15 /s"
size = "1 kB"
lifetime = "10 s"
attributes = { kind = { range = [1, 3] } }

[[subscribers]]
name = "urgent"
at = "c"
filter = "kind = 1"
max_delay = "3 s"
price = 3

[[subscribers]]
name = "patient"
at = "c"
filter = "kind >= 1"
max_delay = "8 s"

[[subscribers]]
name = "near"
at = "b"
filter = "kind >= 2"
max_delay = "2 s"

[policies]
scheduling = "lookahead"
faults = { scheme = "buffer", retry = "1 s" }
"""
"""A link that is busy 60 % of the time and fails: what waits is sent by the default strategy."""

DETOURS: Final = """
title = "Detours"
seed = 9
duration = "16 min"
warmup = "20 s"

[topology]
kind = "explicit"
brokers = ["a", "b", "c", "d", "e"]
links = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"], ["e", "a"], ["b", "d"]]

[links]
propagation = "500 ms"
failures.up = { distribution = "uniform", low = "200 s", high = "500 s" }
failures.down = { distribution = "uniform", low = "70 s", high = "150 s" }

[brokers]
processing = "200 ms"

[[broker]]
name = "c"
failures.up = { distribution = "uniform", low = "200 s", high = "400 s" }
failures.down = { distribution = "uniform", low = "70 s", high = "120 s" }

[[publishers]]
name = "p"
at = ["a", "d"]
count = 2
rate = "30 /min"
lifetime = "40 s"
attributes = { x = { range = [1, 4] } }

[[subscribers]]
name = "s"
at = ["a", "b", "c", "d", "e"]
count = 5
filter = "x <= 3"
max_delay = "20 s"

[policies]
scheduling = "lookahead"
faults = { scheme = "bypass+buffer", retry = "1 s" }
"""
"""Processing times, and detours around links and a broker that fail."""

ORDERED: Final = NARROW.replace("[policies]", '[policies]\nordering = "ours-record"')
"""The narrow line with receivers that want order: an event that is urgent waits for those before it."""

DISTANT: Final = NARROW.replace(
    'max_delay = "2 s"', 'max_delay = "2 s"\naccess = { slowness = "50 ms/kB", propagation = "30 ms" }'
).replace('lifetime = "10 s"', 'lifetime = "10 s"\naccess = { slowness = "30 ms/kB", propagation = "20 ms" }')
"""The narrow line, where the publisher and a subscriber have access links."""

SCENARIOS: Final = {"ring": RING, "narrow": NARROW, "detours": DETOURS}
