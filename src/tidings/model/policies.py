"""The table of policies: their names, effects, drivers, and the default of each kind.

Data, no algorithms. The command line, scenarios, network files, storms, the planner and docs/reference/policies.md read
this table, so a policy has one name, one meaning and one default everywhere.

A driver runs or models a network: live brokers, storms (the same brokers in virtual time), rehearsals (live brokers on
one machine), the simulator, the predictor, the planner. It supports every policy of the table unless `missing` gives
the reason why not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

__all__ = [
    "BUFFERING",
    "BYPASSING",
    "COPYING",
    "DEFAULT_RELOCATION",
    "DEFAULT_ROUTING",
    "DEFAULT_SCHEME",
    "DEFAULT_STRATEGY",
    "DRIVERS",
    "KINDS",
    "NO_ORDERING",
    "ONE_TREE",
    "POLICIES",
    "RELOCATION_EVENTS",
    "RELOCATION_HYSTERESIS",
    "RELOCATION_STAY_S",
    "Driver",
    "Kind",
    "Policy",
    "Relocation",
    "Routing",
    "Scheme",
    "StrategyName",
    "default_of",
    "having",
    "listed",
    "policies",
    "policy",
    "strategies",
]

Kind = Literal["strategy", "scheme", "ordering", "routing", "relocation"]
Driver = Literal["live", "storm", "rehearsal", "simulator", "predictor", "planner"]
StrategyName = Literal["fifo", "rl", "eb", "pc", "ebpc", "lookahead", "plan", "triage"]
Scheme = Literal["static", "periodic", "buffer", "bypass", "bypass+buffer"]
Routing = Literal["single-path", "balanced", "spread", "multi-path", "literal-table"]
Relocation = Literal["off", "pop", "grape", "on-time"]

KINDS: Final[Mapping[Kind, str]] = {
    "strategy": "what a link sends next",
    "scheme": "what brokers do about failures",
    "ordering": "how receivers order the events of a publisher",
    "routing": "which paths events take",
    "relocation": "whether publishers move towards their subscribers",
}
DRIVERS: Final[tuple[Driver, ...]] = get_args(Driver)

DEFAULT_STRATEGY: Final[StrategyName] = "lookahead"
DEFAULT_SCHEME: Final[Scheme] = "bypass+buffer"
DEFAULT_ROUTING: Final[Routing] = "single-path"
DEFAULT_RELOCATION: Final[Relocation] = "off"
RELOCATION_EVENTS: Final = 100
"""Events of a publisher that are sampled before a decision."""
RELOCATION_HYSTERESIS: Final = 0.02
"""The least gain that justifies a move."""
RELOCATION_STAY_S: Final = 60.0
"""How long a publisher stays after it connected or was asked to move."""
NO_ORDERING: Final = "none"
BUFFERING: Final[frozenset[Scheme]] = frozenset({"buffer", "bypass+buffer"})
"""Schemes that store events until the next broker has them."""
BYPASSING: Final[frozenset[Scheme]] = frozenset({"bypass", "bypass+buffer"})
"""Schemes that route events around what has failed."""
ONE_TREE: Final[frozenset[Routing]] = frozenset({"single-path", "balanced"})
"""Routing that gives each publisher one tree."""
COPYING: Final[frozenset[Routing]] = frozenset({"multi-path", "literal-table"})
"""Routing by which several copies of an event may reach a broker."""
_DEFAULTS: Final[Mapping[Kind, str]] = {
    "strategy": DEFAULT_STRATEGY,
    "scheme": DEFAULT_SCHEME,
    "ordering": NO_ORDERING,
    "routing": DEFAULT_ROUTING,
    "relocation": DEFAULT_RELOCATION,
}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One row: `parameters` are their meanings by name, `missing` the reasons why drivers do not support it."""

    kind: Kind
    name: str
    does: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[Driver, str] = field(default_factory=dict)
    is_default: bool = False

    def has(self, driver: Driver) -> bool:
        return driver not in self.missing


_ONE_PATH: Final = "brokers keep one path for each publisher and subscriber"
_MEASURED_FIRST: Final = "needs the rates and a sample of the events beforehand"


def _policy(
    kind: Kind,
    name: str,
    does: str,
    parameters: Mapping[str, str] | None = None,
    missing: Mapping[Driver, str] | None = None,
) -> Policy:
    is_default = name == _DEFAULTS[kind]
    return Policy(
        kind=kind, name=name, does=does, parameters=parameters or {}, missing=missing or {}, is_default=is_default
    )


def _strategy(name: StrategyName, does: str, parameters: Mapping[str, str] | None = None) -> Policy:
    missing: dict[Driver, str] = {}
    if name == "ebpc":
        missing["storm"] = "a storm names a strategy without parameters, unless it plays a scenario"
        missing["planner"] = "`r` would have to be searched too; `lookahead` is similar and has no parameter"
    return _policy("strategy", name, does, parameters, missing)


def _scheme(name: Scheme, does: str) -> Policy:
    return _policy("scheme", name, does)


def _ordering(name: str, does: str, parameters: Mapping[str, str] | None = None) -> Policy:
    missing: dict[Driver, str] = {}
    if name not in (NO_ORDERING, "ours-record"):
        missing["planner"] = "it considers only `ours-record`, which holds events for the shortest time"
    return _policy("ordering", name, does, parameters, missing)


def _routing(name: Routing, does: str) -> Policy:
    missing: dict[Driver, str] = {}
    if name in COPYING:
        missing = dict.fromkeys(("live", "storm", "rehearsal"), _ONE_PATH)
    elif name != DEFAULT_ROUTING:
        missing = dict.fromkeys(("live", "storm", "rehearsal"), _MEASURED_FIRST)
    return _policy("routing", name, does, missing=missing)


def _relocation(name: Relocation, does: str) -> Policy:
    missing: dict[Driver, str] = {}
    if name != "off":
        missing["planner"] = "it searches for better places itself"
        missing["rehearsal"] = "its clients have one broker each to go to; `storm --scenario` moves publishers"
    return _policy("relocation", name, does, missing=missing)


POLICIES: Final[tuple[Policy, ...]] = (
    _strategy("fifo", "sends the event that was enqueued first and drops expired events"),
    _strategy("rl", "sends the event with the least mean time left and drops expired events"),
    _strategy(
        "eb", "sends the event with the largest expected benefit EB and drops expired or hopeless events (paper C)"
    ),
    _strategy("pc", "sends the event for which waiting costs most: PC = EB − EB one transmission later"),
    _strategy(
        "ebpc", "sends the event with the largest r·EB + (1 − r)·PC", {"r": "the weight of EB, from 0 to 1; required"}
    ),
    _strategy(
        "lookahead",
        "sends the event with the largest EB − 0.4·EB two transmissions later; hopeless is a chance below 20 %",
    ),
    _strategy("plan", "plans the next four transmissions and sends the first; hopeless is a chance below 20 %"),
    _strategy(
        "triage", "sends the most urgent event while there is time for all, otherwise the one with the largest EB"
    ),
    _scheme("static", "routes by tables that are never refreshed; events that meet a failure are lost"),
    _scheme("periodic", "refreshes the tables; events that meet a failure are lost"),
    _scheme("buffer", "stores an event until the next broker has it, and sends it again"),
    _scheme("bypass", "routes events around failed brokers and links"),
    _scheme(
        "bypass+buffer", "stores events until the next broker has them, and routes them around failed brokers and links"
    ),
    _ordering(NO_ORDERING, "delivers events as they arrive"),
    _ordering(
        "P-<p>-<n>",
        "holds an event until the chance that an earlier one is still to arrive has fallen to p (paper A)",
        {
            "p": "the chance of a violation, such as 0.05",
            "n": "how many earlier events the record of an event names, 0 for none",
        },
    ),
    _ordering("CST-<ms>", "holds every event behind a gap for the same time", {"ms": "this time in milliseconds"}),
    _ordering(
        "Q-<share>",
        "holds events for the quantile of observed overtaking that repairs a share of the events out of order",
        {"share": "the share to repair, such as 0.995"},
    ),
    _ordering("ours-record", "holds an event until the events that its record names have arrived, rarely longer"),
    _ordering("ours-quantile", "as Q-0.99; it needs no record"),
    _routing("single-path", "takes the path with the least mean slowness from each publisher to each subscriber"),
    _routing("balanced", "gives each publisher a tree that spreads the load once a link would be busy half the time"),
    _routing("spread", "gives each publisher several such trees; an event takes the one with the shortest queues"),
    _routing("multi-path", "sends a copy over every link that leads to a match; the first to arrive counts"),
    _routing("literal-table", "sends a copy to the best neighbour for every reachable match (paper C's table)"),
    _relocation("off", "keeps publishers at their brokers"),
    _relocation("pop", "moves a publisher towards the neighbour that most of its events go to (paper E)"),
    _relocation("grape", "moves a publisher to the best broker by load and delay together (paper E)"),
    _relocation(
        "on-time", "moves a publisher to the broker with the most on-time deliveries, weighted by price (ours)"
    ),
)


def policies(kind: Kind) -> tuple[Policy, ...]:
    """The policies of a kind, in the order of the table."""
    return tuple(each for each in POLICIES if each.kind == kind)


def policy(kind: Kind, name: str) -> Policy:
    """The row of this name; KeyError if there is none."""
    for each in policies(kind):
        if each.name == name:
            return each
    raise KeyError(f"there is no {kind} {name!r}; write {listed(kind)}")


def default_of(kind: Kind) -> Policy:
    """The default of a kind."""
    return next(each for each in policies(kind) if each.is_default)


def strategies(driver: Driver) -> tuple[StrategyName, ...]:
    """The strategies that a driver supports."""
    names: tuple[StrategyName, ...] = get_args(StrategyName)
    return tuple(name for name in names if policy("strategy", name).has(driver))


def having(kind: Kind, driver: Driver) -> tuple[str, ...]:
    """The names of a kind that a driver supports."""
    return tuple(each.name for each in policies(kind) if each.has(driver))


def listed(kind: Kind, driver: Driver | None = None) -> str:
    """The names of a kind, or those that a driver supports, as a phrase."""
    *most, last = having(kind, driver) if driver is not None else (each.name for each in policies(kind))
    return f"{', '.join(most)} or {last}" if most else last
