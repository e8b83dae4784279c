"""Counts for fixed seeds that no change of the event loop may move, unless the model itself changes.

They were taken from the two loops that the present one replaces: one for strategies and paths, one for failures.
"""

from pathlib import Path

import msgspec
import pytest

from tidings.model import Scenario
from tidings.simulation import simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
DURATIONS_S = {"paper-c": 1200.0, "faults": 86_400.0}
FIGURES = ("matched", "on_time", "late", "lost", "dropped", "in_flight", "traffic", "steps")
GOLDEN = {
    ("paper-c", "scheduling", "fifo"): (40410, 5451, 9337, 25622, 25622, 0, 11006, 22012),
    ("paper-c", "scheduling", "rl"): (40410, 3031, 4660, 32719, 32719, 0, 9303, 18606),
    ("paper-c", "scheduling", "eb"): (40410, 20409, 7975, 12026, 12026, 0, 13229, 26458),
    ("paper-c", "scheduling", "pc"): (40410, 15966, 10702, 13742, 13742, 0, 13196, 26392),
    ("paper-c", "scheduling", "lookahead"): (40410, 20566, 7915, 11929, 11929, 0, 13265, 26530),
    ("paper-c", "routing", "literal-table"): (40410, 19412, 7094, 13904, 13904, 0, 18897, 37794),
    ("faults", "faults", "static"): (710786, 190750, 0, 520036, 0, 0, 53140, 69861),
    ("faults", "faults", "periodic"): (710786, 613982, 0, 96804, 0, 0, 115704, 146527),
    ("faults", "faults", "buffer"): (710786, 670449, 0, 40337, 13620, 0, 125191, 282736),
    ("faults", "faults", "bypass"): (710786, 644091, 0, 66695, 0, 0, 126940, 161097),
    ("faults", "faults", "bypass+buffer"): (710786, 674824, 0, 35962, 9245, 0, 135927, 334446),
}


@pytest.mark.parametrize("case", GOLDEN, ids=" ".join)
def test_counts_are_what_they_were(case: tuple[str, str, str]) -> None:
    example, key, value = case
    network = msgspec.structs.replace(
        Scenario.load(EXAMPLES / f"{example}.toml").expand(), duration_s=DURATIONS_S[example]
    )
    old = getattr(network.policies, key)
    new: object = value
    if key == "scheduling":
        new = msgspec.structs.replace(old, name=value, r=None)
    elif key == "faults":
        new = msgspec.structs.replace(old, scheme=value, tables="volatile")
    policies = msgspec.structs.replace(network.policies, **{key: new})
    result = simulate(msgspec.structs.replace(network, policies=policies))
    assert tuple(getattr(result, name) for name in FIGURES) == GOLDEN[case]
