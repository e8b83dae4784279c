"""A prediction from profiles has the policies that were in force, not those that formulas know."""

from dataclasses import replace

import numpy as np

from tidings.model.scenario import Scenario
from tidings.prediction import from_network, predict, predict_measured, predict_network

URGENT = """
duration = "1 h"
seed = 5
topology = { kind = "explicit", brokers = ["a", "b", "c"], links = [["a", "b"], ["b", "c"]] }
links = { propagation = "4 ms", slowness = { distribution = "exponential", mean = "90 ms/kB" } }
publishers = [
    { name = "p", at = "a", rate = "10 /s", size = "1 kB", attributes = { x = { range = [1, 8] } }, lifetime = "3 s" },
]
policies = { scheduling = "lookahead", expired = "drop" }
subscribers = [
    { name = "urgent", at = "c", filter = "x < 5", max_delay = "400 ms", price = 3 },
    { name = "patient", at = "c", filter = "x >= 5", max_delay = "2 s" },
]
"""


def test_a_prediction_from_profiles_has_the_strategy_in_force() -> None:
    """Half of what a line carries is urgent and dear; formulas know neither the strategy nor the prices.

    What was measured here is the scenario itself, so both predictions are samples of it, under other seeds: twice the
    half width of one interval is wider than the difference of two.
    """
    network = Scenario.parse(URGENT).expand()
    knowledge = from_network(network)
    told = replace(knowledge, prices=np.array([each.price for each in network.subscriptions]))
    measured, wanted = predict_measured(told, strategy="lookahead", seed=6), predict_network(network)
    assert measured.sample is not None
    assert wanted.sample is not None
    margin = 2.0 * wanted.sample.half_widths.max()
    assert np.abs(measured.reliability - wanted.reliability).max() <= margin
    assert np.abs(predict(knowledge).reliability - wanted.reliability).max() > margin
    (untold,) = (each for each in measured.unmodelled if each.kind == "policies")
    assert 'used "lookahead"' in untold.effect
