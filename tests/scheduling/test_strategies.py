import math
import typing

import pytest

from tidings.errors import ConfigurationError
from tidings.model.scenario import Scheduling
from tidings.scheduling import HOPELESS_QUANTILE, STRATEGIES, Strategy, strategy


def test_every_name_that_a_scenario_accepts_has_a_strategy() -> None:
    names = typing.get_args(typing.get_type_hints(Scheduling)["name"])
    assert names
    for name in names:
        made = strategy(name, r=0.6 if name == "ebpc" else None)
        assert made.name == name


def test_the_registry_makes_what_it_names() -> None:
    for name, make in STRATEGIES.items():
        made = make(0.5) if name == "ebpc" else make()
        assert made.name == name


def test_values() -> None:
    assert strategy("ebpc", r=0.6) == Strategy.ebpc(0.6)
    assert strategy("eb") == Strategy.eb() != Strategy.eb(epsilon=0.2)
    assert hash(Strategy.pc()) == hash(strategy("pc"))
    assert Strategy.pc().code == Strategy.ebpc(0.0).code
    assert Strategy.pc().r == 0.0
    with pytest.raises(AttributeError):
        Strategy.eb().r = 0.3  # type: ignore[misc]


def test_fifo_and_rl_delete_what_is_expired_and_the_others_what_is_hopeless_too() -> None:
    assert strategy("fifo").quantile == strategy("rl").quantile == math.inf
    for made in (Strategy.eb(), Strategy.pc(), Strategy.ebpc(0.5)):
        assert made.quantile == pytest.approx(HOPELESS_QUANTILE, abs=1e-12)
    for made in (Strategy.lookahead(), Strategy.plan(), Strategy.triage()):
        assert made.quantile == pytest.approx(0.8416212335729143)
    assert Strategy.ebpc(0.6, turns=2.0).postponed_s(3.75) == 7.5


@pytest.mark.parametrize(
    ("name", "r", "message"),
    [
        ("ebcp", None, "did you mean 'ebpc'"),
        ("best", None, "there are fifo, rl, eb, pc, ebpc, lookahead, plan, triage"),
        ("ebpc", None, "needs `r`"),
        ("eb", 0.5, 'leave it out with "eb"'),
        ("ebpc", 1.5, "from 0 to 1, not 1.5"),
    ],
)
def test_wrong_names_and_weights_are_refused(name: str, r: float | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        strategy(name, r=r)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="epsilon"):
        Strategy.eb(epsilon=1.0)
    with pytest.raises(ConfigurationError, match="turns"):
        Strategy.ebpc(0.5, turns=0.0)
    with pytest.raises(ConfigurationError, match="no scheduling strategy 'x'"):
        Strategy(name="x")
