"""How good predictions by a sample are beside those by formulas, and what both cost, for what users run by default.

The quickstart (117 subscribers) with the rates of its publishers raised so that its busiest link has a load of .7, .9,
1.1 and 1.5, by `lookahead`, the default; the quickstart and paper C's layered mesh as they are; and the shops by `eb`.
The truth are three runs of 400,000 events under seeds that nothing else has; what these know themselves is printed as
`noise`. Errors are over the subscribers, and over three samples, of which the network's seeds differ.

- `formulas`: mean and largest |R' - R| of the formulas, and their processor seconds;
- `sample`: the same of samples, the share of 95 % intervals that hold the truth (give or take twice the noise), and the
  ratio of their processor seconds to those of the formulas.

Then how both grow: trees of 10, 100 and 1,000 brokers with 100 subscribers for each (`prediction.make_network`), by
`lookahead`; `ratio` is the ratio of the sample's processor seconds to those of reading filters, content and formulas.
"""

import resource
import time
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.prediction import SIZES, make_network
from tidings.model.distributions import Exponential
from tidings.model.policies import StrategyName
from tidings.model.scenario import Network, Policies, Scenario, Scheduling
from tidings.prediction import Knowledge, from_network, predict, predict_network
from tidings.simulation import Options, simulate

EXAMPLES = Path(__file__).parents[1] / "examples"
LOADS = (0.7, 0.9, 1.1, 1.5)
LIFETIME_S = 0.6
TRUTH_EVENTS, TRUTH_RUNS, SAMPLES = 400_000, 3, 3


def example(name: str, strategy: StrategyName | None = None, load: float | None = None) -> Network:
    """An example as it is, or by another strategy, or with a busiest link of this load."""
    network = Scenario.load(EXAMPLES / f"{name}.toml").expand()
    if strategy is not None:
        policies = msgspec.structs.replace(network.policies, scheduling=Scheduling(name=strategy), expired="drop")
        network = msgspec.structs.replace(network, policies=policies)
    if load is None:
        return network
    forwarded = msgspec.structs.replace(
        network,
        policies=msgspec.structs.replace(network.policies, expired="forward", scheduling=Scheduling(name="fifo")),
    )
    factor = float(predict(from_network(forwarded), model="mm1").stations.utilisation.max()) / load
    publishers = tuple(
        msgspec.structs.replace(each, interval=Exponential(scale=factor * each.interval.mean()))
        for each in network.publishers
    )
    return msgspec.structs.replace(network, publishers=publishers)


def truth(network: Network, knowledge: Knowledge) -> tuple[np.ndarray, float]:
    """R by long runs along the same trees, and by how much these are off themselves."""
    options = Options(trees=[publisher.tree for publisher in knowledge.publishers])
    rate_per_s = sum(publisher.rate_per_s for publisher in network.publishers)
    duration_s = network.warmup_s + TRUTH_EVENTS / rate_per_s
    runs = []
    for seed in range(9_000, 9_000 + TRUTH_RUNS):
        result = simulate(msgspec.structs.replace(network, seed=seed, duration_s=duration_s), options)
        shares = [row.on_time_reliability for row in result.subscribers.values()]
        runs.append([np.nan if share is None else share for share in shares])
    return np.mean(runs, axis=0), float(np.nanmean(np.std(runs, axis=0, ddof=1)) / np.sqrt(TRUTH_RUNS))


def main() -> None:
    networks = {f"quickstart, lookahead, load {load:g}": example("quickstart", "lookahead", load) for load in LOADS}
    networks |= {
        "quickstart": example("quickstart"),
        "paper C": example("paper-c"),
        "shops, eb": example("shops", "eb"),
    }
    print(
        f"{'prediction by a sample':34}{'subscribers':>12}{'noise':>8}{'formulas':>10}{'largest':>9}{'CPU s':>7}"
        f"{'sample':>9}{'largest':>9}{'covers':>8}{'CPU s':>7}{'ratio':>7}"
    )
    for name, network in networks.items():
        knowledge = from_network(network)
        actual, noise = truth(network, knowledge)
        began_s = time.process_time()
        formulas = np.abs(predict(knowledge).reliability - actual)
        formulas_s = time.process_time() - began_s
        errors, covers, began_s = [], [], time.process_time()
        for seed in range(SAMPLES):
            found = predict_network(msgspec.structs.replace(network, seed=network.seed + seed))
            assert found.sample is not None
            errors.append(np.abs(found.reliability - actual))
            ends = zip(found.sample.intervals, actual, strict=True)
            inside = [
                each.low - 2.0 * noise <= share <= each.high + 2.0 * noise
                for each, share in ends
                if each is not None and not np.isnan(share)
            ]
            covers.append(np.mean(inside))
        sample_s = (time.process_time() - began_s) / SAMPLES
        print(
            f"{name:34}{len(actual):12,}{noise:8.4f}{np.nanmean(formulas):10.4f}{np.nanmax(formulas):9.3f}{formulas_s:7.2f}"
            f"{np.nanmean(errors):9.4f}{np.mean(np.nanmax(errors, axis=1)):9.3f}{np.mean(covers):8.3f}"
            f"{sample_s:7.2f}{sample_s / formulas_s:7.1f}"
        )
    grow()


def grow() -> None:
    print(f"{'brokers':>7}{'subscribers':>13}{'formulas CPU s':>16}{'CPU s':>8}{'ratio':>9}{'half width':>12}{'MB':>7}")
    policies = Policies(scheduling=Scheduling(name="lookahead"), routing="single-path", expired="drop")
    for brokers, publishers in SIZES:
        network = make_network(brokers, publishers, is_uniform=False, lifetime_s=LIFETIME_S)
        network = msgspec.structs.replace(network, policies=policies)
        began_s = time.process_time()
        predict(from_network(network))
        formulas_s = time.process_time() - began_s
        began_s = time.process_time()
        found = predict_network(network).sample
        sample_s = time.process_time() - began_s
        assert found is not None
        assert found.mean_half_width is not None
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{brokers:7,}{len(network.subscriptions):13,}"
            f"{formulas_s:16.2f}{sample_s:8.2f}{sample_s / formulas_s:9.1f}"
            f"{found.mean_half_width:12.3f}{peak_mb:7,.0f}"
        )


if __name__ == "__main__":
    main()
