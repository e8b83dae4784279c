"""Admission: what a newcomer gets, what it costs, and when the advice is to refuse."""

import msgspec
import pytest

from tidings.errors import InputError
from tidings.model.distributions import Exponential
from tidings.prediction import Newcomer, admit, from_network, load_newcomer, predict


def test_a_cheap_newcomer_is_let_in(chain) -> None:
    network = chain(2, interval=Exponential(scale=1.0))
    found = admit(network, Newcomer(broker="b0", filter="x = 1"), at_least=0.9)
    assert found.advice == "admit"
    assert found.on_time_reliability == pytest.approx(0.99987659, abs=1e-6)
    assert found.mean_cost == pytest.approx(0.0, abs=1e-9)


def test_a_costly_newcomer_is_refused(chain) -> None:
    """The subscriber wants a tenth of the events at the end of the row; the newcomer would send all of them there."""
    network = chain(3, filters=("x = 4",), interval=Exponential(scale=0.14), max_delay_s=1.0)
    before = predict(from_network(network)).reliability[0]
    newcomer = Newcomer(broker="b2", filter="x >= 1", max_delay="1 s", id="n")
    found = admit(network, newcomer, at_least=before - 0.01)
    assert found.advice == "refuse"
    assert found.falls_below[0].subscription == "s0"
    assert found.costs[0].before == pytest.approx(before)
    assert found.costs[0].after < before - 0.05
    assert "1 subscription would fall below" in found.reason


def test_the_newcomer_itself_must_get_enough(chain) -> None:
    found = admit(chain(1), Newcomer(broker="b0", filter="x = 1", max_delay="10 ms"), at_least=0.5)
    assert (found.advice, found.falls_below) == ("refuse", ())
    assert "its own on-time share" in found.reason


def test_a_newcomer_that_nothing_matches(chain) -> None:
    found = admit(chain(1), Newcomer(broker="b0", filter="x > 100"), at_least=0.5)
    assert found.on_time_reliability is None
    assert found.advice == "admit"
    assert "no publisher can match it" in found.reason


def test_every_stored_subscription_slows_brokers_down(chain) -> None:
    network = chain(1, filters=("x = 1",) * 4)
    per = network.topology.map(
        brokers=lambda b: msgspec.structs.replace(b, service=Exponential(scale=0.03), service_per="subscription")
    )
    found = admit(msgspec.structs.replace(network, topology=per), Newcomer(broker="b0", filter="x > 100"))
    assert found.mean_cost > 0.005


@pytest.mark.parametrize(
    ("newcomer", "message"),
    [
        (Newcomer(broker="nowhere", filter="x = 1"), "there is no broker 'nowhere'"),
        (Newcomer(broker="b0", filter="x ="), "newcomer 'newcomer'"),
        (Newcomer(broker="b0", filter="x = 1", max_delay="1 parsec"), "newcomer 'newcomer'"),
        (Newcomer(broker="b0", filter="x = 1", id="s0"), "already in use"),
    ],
)
def test_bad_newcomers(chain, newcomer, message) -> None:
    with pytest.raises(InputError, match=message):
        admit(chain(1), newcomer)
    with pytest.raises(InputError, match="at_least"):
        admit(chain(1), Newcomer(broker="b0", filter="x = 1"), at_least=2.0)


def test_newcomers_from_files(tmp_path) -> None:
    good = tmp_path / "good.toml"
    good.write_text('broker = "b0"\nfilter = "x = 1"\nmax_delay = "2 s"\n', "utf-8")
    assert load_newcomer(good) == Newcomer(broker="b0", filter="x = 1", max_delay="2 s")
    bad = tmp_path / "bad.toml"
    bad.write_text('broker = "b0"\nfilters = "x = 1"\n', "utf-8")
    with pytest.raises(InputError, match=r"bad\.toml.*write broker"):
        load_newcomer(bad)
    with pytest.raises(InputError, match="cannot be read"):
        load_newcomer(tmp_path / "none.toml")
