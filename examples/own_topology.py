"""A list of lines in CSV becomes a scenario. Shows: how to get your own network into Tidings, and what it says of it.

    python examples/own_topology.py examples/lines.csv > mine.toml
    tidings predict mine.toml

Each line of the CSV is a link in both directions. Who publishes and who subscribes is written below: make it yours.
"""

import csv
import json
import sys
from pathlib import Path

CLIENTS = """
[brokers]
service = { distribution = "exponential", mean = "500 us" }

[[publishers]]
name = "sensor"
at = "all"
per_broker = 2
rate = "10 /s"
size = "1 kB"
lifetime = "10 s"
attributes = { site = { parameter = "broker" }, level = { distribution = "normal", mean = 50, sd = 10, decimals = 1 } }

[[subscribers]]
name = "alarm"
at = "all"
per_broker = 1
filter = "level > 60"
max_delay = "100 ms"
"""


def scenario_of(lines: list[dict[str, str]], title: str) -> str:
    """The text of a scenario with these lines."""
    names = list(dict.fromkeys(name for line in lines for name in (line["from"], line["to"])))
    text = f'title = {json.dumps(title)}\nduration = "10 min"\nwarmup = "30 s"\n\n[topology]\nkind = "explicit"\n'
    text += f"brokers = {json.dumps(names)}\n"
    text += f"links = {json.dumps([[line['from'], line['to']] for line in lines])}\n"
    for line in lines:
        text += f"\n[[link]]\nsource = {json.dumps(line['from'])}\ntarget = {json.dumps(line['to'])}\n"
        text += f'length = "{line["km"]} km"\nbandwidth = "{line["mbit_per_s"]} Mbit/s"\n'
    return text + CLIENTS


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "examples/lines.csv")
    with path.open(newline="", encoding="utf-8") as file:
        print(scenario_of(list(csv.DictReader(file)), title=f"The lines of {path.name}"))
