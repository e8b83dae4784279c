"""Every mistake gets one error that names the file, the line, the key and the remedy."""

# ruff: noqa: E501 (the cases are a table, a line each, with the messages in full)

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import ScenarioError, TidingsError
from tidings.model.scenario import Scenario

GOOD = """title = "a scenario"
duration = "10 s"

[topology]
kind = "explicit"
brokers = ["alpha", "beta", "gamma"]
links = [
    ["alpha", "beta"],
    ["beta", "gamma"],
]

[links]
propagation = "1 ms"
loss = 0.1

[[publishers]]
name = "p"
at = "alpha"
rate = "5 /s"

[publishers.attributes]
x = { range = [1, 5] }

[[subscribers]]
name = "s"
at = "gamma"
filter = "x > {k}"
max_delay = [{ delay = "1 s" }]

[subscribers.parameters]
k = { range = [1, 3] }

[policies]
scheduling = "fifo"
"""


def fails(text):
    with pytest.raises(ScenarioError) as error:
        Scenario.parse(text, "net.toml").expand()
    return str(error.value)


def test_the_text_that_the_cases_start_from_is_good():
    assert len(Scenario.parse(GOOD).expand().subscriptions) == 1


CASES = {
    "unknown table": ("[[publishers]]", "[[publisher]]", "net.toml:16: publisher: unknown key `publisher`; did you mean `publishers`?"),
    "unknown key": ("loss =", "los =", "net.toml:14: links.los: unknown key `los`; did you mean `loss`?"),
    "unknown key, nothing close": ("loss =", "zzz =", "net.toml:14: links.zzz: unknown key `zzz`; known here are propagation, slowness, bandwidth, loss"),
    "unknown unit": ('"1 ms"', '"5 kg"', "net.toml:13: links.propagation: '5 kg': unknown unit 'kg'; write a time in one of d, h, min, s, ms, us, ns"),
    "a size for a time": ('"1 ms"', '"5 kB"', "net.toml:13: links.propagation: '5 kB': 'kB' is a unit of size, but a time is expected here; write it like \"250 ms\""),
    "a bare number": ('"1 ms"', "5", 'net.toml:13: links.propagation: 5 has no unit, but a time is expected here; write "5 s" if that is what you mean'),
    "negative time": ('"10 s"', '"-10 s"', "net.toml:2: duration: '-10 s' is not possible: it must be above 0"),
    "unknown distribution": ('"1 ms"', '{ distribution = "exponental", mean = "2 ms" }', "net.toml:13: links.propagation.distribution: there is no distribution 'exponental'; did you mean `exponential`?"),
    "no distribution": ('"1 ms"', '{ mean = "2 ms" }', "net.toml:13: links.propagation: `distribution` is missing; write distribution = one of deterministic"),
    "unknown parameter of a distribution": ('"1 ms"', '{ distribution = "exponential", men = "2 ms" }', "net.toml:13: links.propagation.men: distribution `exponential` has no parameter `men`; did you mean `mean`?"),
    "missing parameter of a distribution": ('"1 ms"', '{ distribution = "uniform", low = "2 ms" }', "net.toml:13: links.propagation: distribution `uniform` needs `high`; it takes low, high"),
    "parameter without a unit": ('"1 ms"', '{ distribution = "exponential", mean = 2 }', "net.toml:13: links.propagation.mean: 2 has no unit"),
    "impossible parameter": ('"1 ms"', '{ distribution = "uniform", low = "3 ms", high = "2 ms" }', "net.toml:13: links.propagation: uniform: `high` must be above low = 0.003, not 0.002"),
    "fraction where a whole number is due": ("range = [1, 5]", 'distribution = "zipf", count = 2.5, exponent = 1', "net.toml:22: publishers[0].attributes.x.count: expected a whole number, got a number"),
    "drawn parameter goes wrong": ('"1 ms"', '{ distribution = "uniform", low = { distribution = "uniform", low = "0 ms", high = "7 ms" }, high = "4 ms" }', "net.toml:13: links.propagation: with the drawn low = 0.00"),
    "drawn parameter of content goes wrong": ("range = [1, 5]", 'distribution = "uniform", low = { distribution = "deterministic", value = 7 }, high = 4', "net.toml:22: publishers[0].attributes.x: uniform: `high` must be above low = 7.0, not 4.0"),
    "impossible mean": ('"1 ms"', '{ distribution = "exponential", mean = "0 ms" }', "net.toml:13: links.propagation: exponential: `mean` must be a finite number > 0, not 0.0"),
    "adding what is not there": ("k = { range = [1, 3] }", 'k = { distribution = "exponential", mean = 1, plus = "j" }', "net.toml:31: subscribers[0].parameters.k.plus: `j` is not a number that can be added: there is no such parameter before this one"),
    "ranks for a time": ('"1 ms"', '{ distribution = "zipf", count = 3, exponent = 1 }', "there is no distribution 'zipf'"),
    "loss beyond 1": ("0.1", "1.5", "net.toml:14: links.loss: 1.5 is not possible: it must be a probability, 0 or more and below 1"),
    "drawn loss beyond 1": ("0.1", '{ distribution = "uniform", low = 1, high = 2 }', "net.toml:14: links.loss: link 'alpha' -> 'beta': loss is"),
    "wrong type": ('"a scenario"', "5", "net.toml:1: title: expected a string, got a whole number"),
    "a table that is a number": ('[policies]\nscheduling = "fifo"', "[links.loss]", "net.toml:33:12: not valid TOML: Cannot overwrite a value"),
    "a number that is a table": ('[policies]\nscheduling = "fifo"', "[title]", "net.toml:33:7: not valid TOML: Cannot overwrite a value"),
    "an array that is a table": ("[[subscribers]]", "[subscribers]", "net.toml:24: subscribers: expected an array, got a table"),
    "seed is negative": ('title = "a scenario"', "seed = -1", "net.toml:1: seed: must be a whole number, at least 0"),
    "seed is no whole number": ('title = "a scenario"', "seed = 1.5", "net.toml:1: seed: expected a whole number, got a number"),
    "warm-up beyond the run": ('title = "a scenario"', 'warmup = "1 min"', "net.toml:1: warmup: the warm-up must end before the run does"),
    "duration is missing": ('duration = "10 s"', "", 'net.toml:1: `duration` is missing; write for example duration = "10 min"'),
    "disconnected": ('    ["beta", "gamma"],\n', "", "net.toml:4: topology: the topology is disconnected: from broker 'alpha' no links lead to 'gamma'; add links or leave these brokers out"),
    "zero brokers": ('["alpha", "beta", "gamma"]', "[]", "net.toml:6: topology.brokers: must have at least 1 element"),
    "broker given twice": ('["alpha", "beta", "gamma"]', '["alpha", "beta", "alpha"]', "net.toml:6: topology.brokers[2]: broker 'alpha' is given twice"),
    "link to nowhere": ('["beta", "gamma"]', '["beta", "gama"]', "net.toml:9: topology.links[1]: there is no broker 'gama'; did you mean `gamma`?"),
    "link to itself": ('["beta", "gamma"]', '["beta", "beta"]', "net.toml:9: topology.links[1]: a link from 'beta' to itself"),
    "link twice": ('["beta", "gamma"]', '["beta", "alpha"]', "net.toml:9: topology.links[1]: the link 'beta' to 'alpha' is given twice (links have both directions here)"),
    "link of three": ('["beta", "gamma"]', '["beta", "gamma", "alpha"]', "net.toml:9: topology.links[1]: must have at most 2 elements"),
    "unknown kind": ('"explicit"', '"explict"', "net.toml:5: topology.kind: there is no kind 'explict'; did you mean `explicit`?"),
    "kind of the wrong type": ('"explicit"', "[1]", "net.toml:5: topology.kind: there is no kind [1]; write one of explicit"),
    "publisher on a missing broker": ('at = "alpha"', 'at = "alpa"', "net.toml:18: publishers[0].at: there is no broker 'alpa'; did you mean `alpha`?"),
    "publisher on one missing broker of two": ('at = "alpha"', 'at = ["beta", "x"]', "net.toml:18: publishers[0].at[1]: there is no broker 'x'; write all, leaves, random, layer:N or one of alpha, beta, gamma"),
    "layer without layers": ('at = "alpha"', 'at = "layer:1"', "net.toml:18: publishers[0].at: this topology has no layers"),
    "count and per_broker": ('at = "alpha"', 'at = "alpha"\ncount = 2\nper_broker = 2', "net.toml:20: publishers[0].per_broker: both `count` and `per_broker` are given"),
    "negative rate": ('"5 /s"', '"-5 /s"', "net.toml:19: publishers[0].rate: '-5 /s' is not possible: it must be above 0"),
    "no rate": ('rate = "5 /s"', "", 'net.toml:16: publishers[0]: `rate` or `interval` is missing; write rate = "15 /min"'),
    "rate and interval": ('rate = "5 /s"', 'rate = "5 /s"\ninterval = "1 s"', "net.toml:20: publishers[0].interval: both `rate` and `interval` are given"),
    "unknown content": ("range = [1, 5]", "rang = [1, 5]", "net.toml:22: publishers[0].attributes.x.rang: unknown key `rang`; did you mean `range`?"),
    "range backwards": ("range = [1, 5]", "range = [5, 1]", "net.toml:22: publishers[0].attributes.x.range: expected the first and the last whole number, such as [1, 10]"),
    "weights that do not fit": ("range = [1, 5]", "values = [1, 5], weights = [1]", "net.toml:22: publishers[0].attributes.x.weights: expected an array of 2 weights"),
    "weights of nothing": ("range = [1, 5]", "values = [1, 5], weights = [0, 0]", "the weights must add up to more than 0"),
    "content refers to nothing": ("{ range = [1, 5] }", '{ parameter = "y" }', "net.toml:22: publishers[0].attributes.x: there is no parameter `y`; known here are number, name, broker"),
    "malformed filter": ('"x > {k}"', '"x > > {k}"', "net.toml:27: subscribers[0].filter: not a filter: found '>'"),
    "filter without its parameter": ('"x > {k}"', '"x > {kk}"', "net.toml:27: subscribers[0].filter: there is no parameter {kk}; did you mean `k`?"),
    "parameter without use": ('"x > {k}"', '"x > 5"', "net.toml:31: subscribers[0].parameters.k: nothing uses the parameter `k`; write {k} in the filter, or leave it out"),
    "parameter called like a built-in": ("k = {", "name = {", "net.toml:31: subscribers[0].parameters.name: `name` is predefined"),
    "deadline choice without unit": ('delay = "1 s"', "delay = 1", "net.toml:28: subscribers[0].max_delay[0].delay: 1 has no unit"),
    "deadline choice without delay": ('{ delay = "1 s" }', "{ price = 1 }", 'net.toml:28: subscribers[0].max_delay[0]: `delay` is missing; write for example delay = "10 s"'),
    "no deadline choice": ('[{ delay = "1 s" }]', "[]", "net.toml:28: subscribers[0].max_delay: give at least one choice"),
    "price twice": ('filter = "x', 'price = 3\nfilter = "x', "net.toml:27: subscribers[0].price: the choices of `max_delay` have their own prices"),
    "same name twice": ('name = "s"', 'name = "p"', "net.toml:25: subscribers[0].name: client 'p' is already in publishers[0]"),
    "unknown policy": ('"fifo"', '"fifa"', "net.toml:34: policies.scheduling.name: 'fifa' is not possible here; did you mean `fifo`?"),
    "relocation with routes for one place": ('scheduling = "fifo"', 'relocation = "grape"\nrouting = "balanced"', "net.toml:34: policies.relocation: publishers move by \"grape\", but \"balanced\" routes are computed for fixed publishers; write routing = \"single-path\", or relocation = \"off\""),
    "unknown relocation": ('scheduling = "fifo"', 'relocation = "grap"', "net.toml:34: policies.relocation.name: 'grap' is not possible here; did you mean `grape`?"),
    "ebpc without r": ('"fifo"', '"ebpc"', "net.toml:34: policies.scheduling: scheduling by \"ebpc\" needs `r`"),
    "r without ebpc": ('"fifo"', '{ name = "eb", r = 0.5 }', "net.toml:34: policies.scheduling.r: `r` belongs to \"ebpc\""),
    "r beyond 1": ('"fifo"', '{ name = "ebpc", r = 1.5 }', "net.toml:34: policies.scheduling.r: must be a number, at most 1"),
    "override of no link": ("[links]", '[[link]]\nsource = "alpha"\ntarget = "gamma"\n[links]', "net.toml:14: link[0].target: there is no link 'alpha' to 'gamma'; 'alpha' has links to beta"),
    "override of no broker": ("[links]", '[[broker]]\nname = "delta"\n[links]', "net.toml:13: broker[0].name: there is no broker 'delta'"),
    "second override is wrong": ("[links]", '[[link]]\nsource = "alpha"\ntarget = "beta"\n[[link]]\nsource = "beta"\n[links]', 'net.toml:15: link[1]: `target` is missing; write for example target = "b"'),
    "slowness and bandwidth": ("loss = 0.1", 'slowness = "1 ms/kB"\nbandwidth = "1 Mbit/s"', "net.toml:15: links.bandwidth: both `slowness` and `bandwidth` are given"),
    "TOML syntax": ('duration = "10 s"', "duration = ", "net.toml:2:12: not valid TOML: Invalid value"),
    "TOML ends too early": ('scheduling = "fifo"\n', 'scheduling = [', "net.toml:34:15: not valid TOML"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), CASES.values(), ids=CASES)
def test_mistakes(old, new, message):
    assert GOOD.count(old) == 1 or old in ('"1 ms"', "0.1", '"10 s"'), "the case must change one place"
    assert message in fails(GOOD.replace(old, new, 1))


def test_a_malformed_filter_is_shown_with_a_caret():
    lines = fails(GOOD.replace("x > {k}", "x > > {k}")).splitlines()
    assert lines[1].index(">") == lines[2].index("^") - 2
    assert lines[2].strip() == "^"


TOPOLOGIES = {
    'topology = "topohub:sndlib/polsk"': "net.toml:2: topology: topohub has no network 'sndlib/polsk'; did you mean 'sndlib/polska'",
    'topology = "polska"': "net.toml:2: topology: 'polska' is not a topology; write \"topohub:sndlib/germany50\"",
    "topology = 5": "net.toml:2: topology: expected a table, got a whole number",
    "[topology]\nbrokers = 3": "net.toml:2: topology: `kind` is missing; write kind = one of explicit, balanced-tree",
    '[topology]\nkind = "random-tree"': "net.toml:2: topology: `brokers` is missing; write for example brokers = 20",
    '[topology]\nkind = "random-tree"\nbrokers = 0': "net.toml:4: topology.brokers: must be a whole number, at least 1",
    '[topology]\nkind = "random-graph"\nbrokers = 10\nmean_degree = 1': "net.toml:2: topology: a connected graph of 10 brokers cannot have mean degree 1; give mean_degree from 1.8 to 9",
    '[topology]\nkind = "balanced-tree"\nbranching = 2\ndepth = 99': "too many: at most 100,000",
    '[topology]\nkind = "layered-mesh"\nfan_in = ["all", 5, 2]': "layer 3 takes 5 links from the 4 brokers above it",
    '[topology]\nkind = "layered-mesh"\nfan_in = ["al", 2, 2]': "net.toml:4: topology.fan_in[0]: 'al' is not possible here; did you mean `all`?",
}  # fmt: skip


@pytest.mark.parametrize("text", TOPOLOGIES)
def test_impossible_topologies(text):
    assert TOPOLOGIES[text] in fails(f'duration = "1 s"\n{text}\n')


def test_subscribers_that_no_event_can_reach():
    text = GOOD.replace('"explicit"', '"explicit"\ndirection = "forward"').replace('at = "alpha"', 'at = "beta"')
    message = fails(text.replace('at = "gamma"', 'at = "alpha"'))
    assert "net.toml:27: subscribers[0].at: no publisher can reach broker 'alpha' along the links" in message


def test_files_that_cannot_be_read(tmp_path):
    def load(path):
        with pytest.raises(ScenarioError) as error:
            Scenario.load(path)
        return str(error.value)

    missing = tmp_path / "none.toml"
    assert load(missing) == f"{missing}: there is no such file; give the path of a scenario in TOML"
    assert load(tmp_path) == f"{tmp_path}: is a directory; give the path of a scenario file in it"
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'duration = "1 s"\ntitle = "caf\xe9"\n')
    assert load(latin) == f"{latin}:2: byte 29 is not UTF-8; save the file as UTF-8 text"
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    assert load(empty).startswith(f"{empty}:1: nothing is written here; a scenario needs at least `duration")
    empty.write_text("# only a comment\n")
    assert "nothing is written here" in load(empty)
    marked = tmp_path / "bom.toml"
    marked.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert Scenario.load(marked).document.title == "a scenario"


def test_hostile_numbers_and_nesting():
    assert "not valid TOML" in fails(f"seed = {'9' * 5000}")
    assert "too deeply" in fails("seed = " + "[" * 100_000)
    assert "is not a finite number" in fails(
        GOOD.replace("range = [1, 5]", f'distribution = "exponential", mean = {"9" * 400}')
    )
    assert "at most 64 bits" in fails(GOOD.replace("{ range = [1, 5] }", "9" * 30))
    assert "distributions can be nested at most 3 deep" in fails(
        GOOD.replace('"1 ms"', '{ distribution = "exponential", mean = ' * 5 + '"1 ms"' + "}" * 5)
    )


def test_a_negative_seed_is_refused():
    with pytest.raises(ScenarioError, match="seed -1 is negative"):
        Scenario.parse(GOOD).expand(-1)


JUNK = st.recursive(
    st.none().map(lambda _: datetime.date(2011, 7, 4))
    | st.booleans()
    | st.integers(-3, 10**20)
    | st.floats()
    | st.sampled_from(["", "x", "5 ms", "5", "all", "{k}", "\x00", "topohub:x", "eb"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["distribution", "law", "mean", "kind", "name", "values", "range", "delay", "parameter"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
KEYS = ["title", "seed", "duration", "warmup", "topology", "links", "link", "brokers", "broker", "policies"]
GROUP = ["name", "at", "count", "per_broker", "rate", "interval", "lifetime", "size", "attributes", "parameters"]


def written(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\x00", "\\u0000") + '"'
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {written(item)}" for key, item in value.items()) + "}"
    return str(value)


@given(
    st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=4), st.dictionaries(st.sampled_from(GROUP), JUNK, max_size=4)
)
@settings(max_examples=300, deadline=None)
def test_junk_is_refused_with_an_error_of_ours(top, group):
    good = {"duration": "1 s", "topology": {"kind": "balanced-tree", "branching": 2, "depth": 1}}
    member = {"name": "p", "at": "all", "rate": "1 /s"}
    text = "\n".join(f"{key} = {written(value)}" for key, value in (good | top).items())
    text += "\n[[publishers]]\n" + "\n".join(f"{key} = {written(value)}" for key, value in (member | group).items())
    try:
        Scenario.parse(text).expand()
    except TidingsError as error:
        assert isinstance(error, ScenarioError)  # noqa: PT017
        assert str(error).startswith("<scenario>")  # noqa: PT017
