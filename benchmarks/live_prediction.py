"""Prediction closes the loop: what the profiles of a live network's trace predict, beside what the trace measured.

Seven broker processes in a tree, their links of a fixed capacity (`live_load`), with traces. Two publishers at leaves
publish at random (Poisson), with lifetimes near the delays: many events would be late, and the brokers let go of those
that have no chance any more. Events are of different sizes: how much of a link's delay is due to size cannot be known
from events that are all alike. After SECONDS of that, `tidings pipeline run` reads the trace; from its profiles alone,
without the trace, R' is predicted for every subscription (as by `tidings predict DIRECTORY`), and compared with
the R that the pipeline counted. Then the same from what the brokers remembered at the end of the load, without the
trace (as by `tidings predict --live`).
"""

import asyncio
import contextlib
import math
import os
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import uvloop

import tidings
from benchmarks.live_load import brokers, free_ports, shaped
from tidings.live import Tidings, read_network
from tidings.live.operations import ask_windows
from tidings.live.operations._profiles import BrokerWindow
from tidings.live.traces import merged, write_merged

if TYPE_CHECKING:
    from tidings.prediction import Prediction

SECONDS = float(os.environ.get("TIDINGS_SECONDS", "60"))
LINK_BYTES_PER_S = 60_000.0
SPARE_S = 0.002
PAYLOAD_BYTES = (100, 1_700)
RATE_PER_S = 14.0
SHORTEST_S, LONGEST_S = 0.05, 0.35
KINDS = 10
LINKS = (("b1", "b2"), ("b1", "b3"), ("b2", "b4"), ("b2", "b5"), ("b3", "b6"), ("b3", "b7"))
PUBLISHERS = ("b4", "b6")
SEED = 11
MEAN_ERROR_OF_HALF_WIDTH = math.sqrt(2.0 / math.pi) / 1.96
"""The mean absolute error of a normal estimate, in halves of its 95 % interval."""


class Measured(NamedTuple):
    """What the trace counted for a subscription, with half of its 95 % interval."""

    matched: int
    reliability: float
    half_width: float


class Rolling(NamedTuple):
    """What is predicted from the windows that brokers keep in memory, and what they measured."""

    words: str
    measured: float
    predicted: dict[str, float]
    took_s: float


def main() -> None:
    print(f"prediction: 7 brokers, 6 links of {LINK_BYTES_PER_S / 1000:g} kB/s, {SECONDS:g} s of load")
    with tempfile.TemporaryDirectory(prefix="tidings-") as directory:
        windows = _run(Path(directory))
        measured, predicted, by_formulas = _compare(Path(directory))
        rolling = _predict_rolling(*windows, Path(directory))
    print(
        f"{'subscription':16}{'matched':>9}{'measured R':>12}{'+-':>7}{'predicted R':>13}"
        f"{'difference':>12}{'formulas':>10}"
    )
    for name, score in sorted(measured.items()):
        print(
            f"{name:16}{score.matched:>9,}{score.reliability:>12.3f}{score.half_width:>7.3f}{predicted[name]:>13.3f}"
            f"{predicted[name] - score.reliability:>+12.3f}{by_formulas[name] - score.reliability:>+10.3f}"
        )
    total = sum(score.matched for score in measured.values())
    overall = sum(score.matched * score.reliability for score in measured.values()) / total
    answer = sum(score.matched * predicted[name] for name, score in measured.items()) / total
    print(f"{'all':16}{total:>9,}{overall:>12.3f}{'':7}{answer:>13.3f}{answer - overall:>+12.3f}")
    mean = _mean_difference(predicted, measured)
    formulas = _mean_difference(by_formulas, measured)
    noise = sum(score.half_width for score in measured.values()) / len(measured) * MEAN_ERROR_OF_HALF_WIDTH
    print(f"mean difference of a subscription {mean:.3f}; by formulas, which know no strategy, {formulas:.3f}")
    print(
        f"a prediction without any error would differ by {noise:.3f}: so far is what {SECONDS:g} s show from the truth"
    )
    print(
        f"from what brokers remember (`tidings profile`), {rolling.words}: all {rolling.measured:.3f} measured, "
        f"{_overall(rolling.predicted, measured):.3f} predicted; mean difference of a subscription from what the trace "
        f"measured {_mean_difference(rolling.predicted, measured):.3f}, from what is predicted from the trace "
        f"{_apart(rolling.predicted, predicted):.3f}; asked and predicted in {rolling.took_s:.1f} s"
    )


def _mean_difference(answers: dict[str, float], measured: dict[str, Measured]) -> float:
    return sum(abs(answers[name] - score.reliability) for name, score in measured.items()) / len(measured)


def _overall(answers: dict[str, float], measured: dict[str, Measured]) -> float:
    return sum(each.matched * answers[name] for name, each in measured.items()) / sum(
        each.matched for each in measured.values()
    )


def _apart(answers: dict[str, float], others: dict[str, float]) -> float:
    return sum(abs(answers[name] - others[name]) for name in others) / len(others)


def _run(directory: Path) -> tuple[list[BrokerWindow], float]:
    """The network with its load, and what brokers remember at its end; the trace is whole when they have ended."""
    names = sorted({name for link in LINKS for name in link})
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    with contextlib.ExitStack() as stack:
        text = '[network]\nsynchronised_clocks = true\n[trace]\ndirectory = "trace"\nroll_age = "2 s"\n'
        links = {
            far: stack.enter_context(shaped(ports[far], bytes_per_s=LINK_BYTES_PER_S, spare_s=SPARE_S))
            for _, far in LINKS
        }
        near = {far: name for name, far in LINKS}
        for name in names:
            text += f'[[broker]]\nname = "{name}"\nlisten = "127.0.0.1:{ports[name]}"\n'
            if name in links:
                text += f'neighbours = ["{near[name]}"]\naddress = "127.0.0.1:{links[name].port}"\n'
        stack.enter_context(brokers(text, ports, directory))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_play(ports, directory / "network.toml"))


async def _play(ports: dict[str, int], file: Path) -> tuple[list[BrokerWindow], float]:
    async with contextlib.AsyncExitStack() as stack:

        async def connected(broker: str, name: str) -> Tidings:
            client = tidings.connect(f"127.0.0.1:{ports[broker]}", name=name)
            return await stack.enter_async_context(client)

        for number, broker in enumerate(sorted(ports)):
            client = await connected(broker, f"at-{broker}")
            for most in (4 + number % 3, KINDS):
                await client.subscribe(f"kind < {most}", name=f"below-{most}", max_delay_s=1.0, callback=lambda _: None)
        publishers = [await connected(broker, f"from-{broker}") for broker in PUBLISHERS]
        await asyncio.sleep(2.0)  # for the subscriptions to be known everywhere
        await asyncio.gather(*(_publish(client, SEED + number) for number, client in enumerate(publishers)))
        await asyncio.sleep(1.0)
        began_s = time.monotonic()
        windows, silent = await ask_windows(read_network(file))
        assert not silent, silent
        return windows, time.monotonic() - began_s


async def _publish(client: Tidings, seed: int) -> None:
    dice = random.Random(seed)
    due_s = began_s = time.monotonic()
    while (due_s := due_s + dice.expovariate(RATE_PER_S)) < began_s + SECONDS:
        await asyncio.sleep(max(due_s - time.monotonic(), 0.0))
        lifetime_s, payload = dice.uniform(SHORTEST_S, LONGEST_S), bytes(dice.randint(*PAYLOAD_BYTES))
        await client.offer({"kind": dice.randrange(KINDS)}, payload=payload, lifetime_s=lifetime_s)


def _compare(directory: Path) -> tuple[dict[str, Measured], dict[str, float], dict[str, float]]:
    """By subscription: what was measured, the share that is predicted, and that by formulas."""
    from tidings.pipeline import run_in_process
    from tidings.prediction import from_profiles, predict, predict_measured, read_profiles

    result = run_in_process([directory / "trace"], directory / "scores")
    if result.bad:
        print(f"{result.bad:,} rows of the trace are bad: {result.quarantined}")
    measured = {
        name: Measured(
            matched=score.matched,
            reliability=score.on_time_reliability,
            half_width=((score.reliability_high or 1.0) - (score.reliability_low or 0.0)) / 2.0,
        )
        for name, score in result.subscribers.items()
        if score.on_time_reliability is not None
    }
    knowledge = from_profiles(read_profiles(directory / "scores"))
    return measured, _shares(predict_measured(knowledge)), _shares(predict(knowledge))


def _shares(answer: "Prediction") -> dict[str, float]:
    return {name: found.on_time_reliability or 0.0 for name, found in answer.subscribers.items()}


def _predict_rolling(windows: list[BrokerWindow], asked_s: float, directory: Path) -> Rolling:
    """What `tidings predict --live` does with the answers of the brokers."""
    from tidings.pipeline import run_in_process
    from tidings.prediction import from_profiles, predict_measured, read_profiles

    began_s = time.monotonic()
    rows = merged(windows, read_network(directory / "network.toml").links)
    write_merged(rows, directory / "rolling" / "window")
    result = run_in_process([directory / "rolling" / "window"], directory / "rolling")
    if result.bad:
        print(f"{result.bad:,} rows of the windows are bad: {result.quarantined}")
    predicted = _shares(predict_measured(from_profiles(read_profiles(directory / "rolling"))))
    return Rolling(
        words=f"{rows.events:,} events, a share of {rows.share:g}, {rows.lasted_ns * 1e-9:.0f} s",
        measured=result.delivery_rate or 0.0,
        predicted=predicted,
        took_s=asked_s + time.monotonic() - began_s,
    )


if __name__ == "__main__":
    main()
