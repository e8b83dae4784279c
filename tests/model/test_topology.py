import networkx
import pytest

from tidings.errors import ConfigurationError
from tidings.model.distributions import Deterministic
from tidings.model.topology import Broker, Link, Topology


def link(source, target, **more):
    return Link(source=source, target=target, propagation=Deterministic(value=0.001), **more)


def topology(names, pairs):
    return Topology(brokers=tuple(Broker(name=n) for n in names), links=tuple(link(a, b) for a, b in pairs))


def test_lookup():
    net = topology("abc", [("a", "b"), ("b", "a"), ("c", "b")])
    assert dict(net.index) == {"a": 0, "b": 1, "c": 2}
    assert net.neighbours("b") == ("a",)
    assert net.neighbours("c") == ("b",)
    assert net.link("c", "b").target == "b"
    assert net.broker("c").name == "c"
    assert net.has_link("a", "b")
    assert not net.has_link("b", "c")
    assert net.reachable("a") == {"a", "b"}
    assert net.reachable("c") == {"a", "b", "c"}
    with pytest.raises(KeyError):
        net.link("b", "c")


def test_is_frozen_and_equal_by_value():
    net = topology("ab", [("a", "b")])
    with pytest.raises(AttributeError):
        net.links = ()
    with pytest.raises(TypeError):
        net.index["z"] = 3
    assert net == topology("ab", [("a", "b")])


def test_networkx_keeps_the_values():
    net = topology("abc", [("a", "b"), ("c", "b")])
    graph = net.to_networkx()
    assert list(graph.edges) == [("a", "b"), ("c", "b")]
    assert graph.edges["c", "b"]["link"] is net.link("c", "b")
    assert networkx.is_weakly_connected(graph)


def test_map_changes_links_and_keeps_the_rest():
    net = topology("ab", [("a", "b")])
    slow = net.map(links=lambda old: link(old.source, old.target, loss=0.5))
    assert slow.links[0].loss == 0.5
    assert slow.brokers == net.brokers


@pytest.mark.parametrize(
    ("names", "pairs", "message"),
    [
        ("", [], "no brokers"),
        ("aba", [], "broker 'a' is given twice"),
        (["alpha", "beta"], [("alpha", "bta")], "there is no broker 'bta'; did you mean 'beta'?"),
        ("ab", [("a", "a")], "link from broker 'a' to itself"),
        ("ab", [("a", "b"), ("a", "b")], "link 'a' -> 'b' is given twice"),
        ("abcd", [("a", "b"), ("c", "d")], "from broker 'a' no links lead to 'c', 'd'"),
        ("abcdefghijkl", [("a", "b")], "'i', 'j' and 2 more"),
    ],
)
def test_what_is_no_network(names, pairs, message):
    with pytest.raises(ConfigurationError) as error:
        topology(names, pairs)
    assert message in str(error.value)


@pytest.mark.parametrize("loss", [-0.1, 1.0, float("nan")])
def test_loss_is_a_probability_below_one(loss):
    with pytest.raises(ConfigurationError, match="loss"):
        link("a", "b", loss=loss)
