"""The strategies by name, as frozen values.

| name | sends first | deletes |
| --- | --- | --- |
| `fifo` | what was enqueued first | expired |
| `rl` | the least mean lifetime left, over subscriptions not yet expired | expired |
| `eb` | the greatest expected benefit (Equation 3) | expired, hopeless |
| `pc` | the greatest postponing cost (Equation 9) | expired, hopeless |
| `ebpc` | the greatest r EB + (1 - r) PC (Equation 10); EB' looks `turns` transmissions ahead | expired, hopeless |
| `lookahead` | ours: as `ebpc`, with r = .6, two transmissions ahead | expired, hopeless (20 %) |
| `plan` | ours: the first of the best plan of four transmissions, in steps of `turns` | expired, hopeless (20 %) |
| `triage` | ours: while there is time for all, the most urgent; else the greatest EB, of equals the newest | as above |

Hopeless: no subscription has a chance above `epsilon` (Equation 11); epsilon 0 deletes what is expired and no more. A
success probability is computed as if the event never waited again, so under overload a chance of 20 % is far less in
truth, and the turn is better given to another.

Triage, for a link that is now calm and now overloaded: "time for all" is if everything that waits, the most urgent
first, could leave before it is hopeless at `turns` transmissions for each. Then nothing is lost by sending the most
urgent. If not, something will be lost whatever is sent: by the greatest EB it is what is worth least; and of equals the
newest, so that what comes after an overload need not wait behind what the overload has left.
"""

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidings.errors import ConfigurationError

__all__ = [
    "BOLD_EPSILON",
    "EB",
    "EBPC",
    "FIFO",
    "PAPER_EPSILON",
    "PLAN",
    "RL",
    "STRATEGIES",
    "TRIAGE",
    "Strategy",
    "strategy",
]

FIFO, RL, EB, EBPC, PLAN, TRIAGE = range(6)
"""What compiled decisions know strategies by."""

PAPER_EPSILON = 0.0005
BOLD_EPSILON = 0.2

_CODES = {
    "fifo": FIFO,
    "rl": RL,
    "eb": EB,
    "pc": EBPC,
    "ebpc": EBPC,
    "lookahead": EBPC,
    "plan": PLAN,
    "triage": TRIAGE,
}


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What a link sends first and what it deletes; `strategy(name)` makes it by name, `Strategy.eb()` and so on too."""

    name: str
    r: float = 1.0
    turns: float = 1.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in _CODES:
            raise ConfigurationError(_unknown(self.name))
        if not 0.0 <= self.r <= 1.0:
            raise ConfigurationError(f"strategy {self.name!r}: r is the weight of EB, from 0 to 1, not {self.r!r}")
        if not 0.0 < self.turns < math.inf:
            raise ConfigurationError(f"strategy {self.name!r}: turns must be above 0 and finite, not {self.turns!r}")
        if not 0.0 <= self.epsilon < 1.0:
            raise ConfigurationError(
                f"strategy {self.name!r}: epsilon is the chance up to which an event is hopeless, from 0 to below 1, "
                f"not {self.epsilon!r}"
            )

    @classmethod
    def fifo(cls) -> "Strategy":
        """First in, first out."""
        return cls(name="fifo")

    @classmethod
    def rl(cls) -> "Strategy":
        """Least remaining lifetime first."""
        return cls(name="rl")

    @classmethod
    def eb(cls, *, epsilon: float = PAPER_EPSILON) -> "Strategy":
        """Greatest expected benefit first."""
        return cls(name="eb", epsilon=epsilon)

    @classmethod
    def pc(cls, *, epsilon: float = PAPER_EPSILON) -> "Strategy":
        """Greatest postponing cost first."""
        return cls(name="pc", r=0.0, epsilon=epsilon)

    @classmethod
    def ebpc(cls, r: float, *, turns: float = 1.0, epsilon: float = PAPER_EPSILON) -> "Strategy":
        """Greatest mix of the two first: r is the weight of EB."""
        return cls(name="ebpc", r=r, turns=turns, epsilon=epsilon)

    @classmethod
    def lookahead(cls, *, r: float = 0.6, turns: float = 2.0, epsilon: float = BOLD_EPSILON) -> "Strategy":
        """EBPC that looks further ahead and gives up earlier; its defaults beat EB and EBPC under overload."""
        return cls(name="lookahead", r=r, turns=turns, epsilon=epsilon)

    @classmethod
    def plan(cls, *, r: float = 0.7, turns: float = 2.0, epsilon: float = BOLD_EPSILON) -> "Strategy":
        """The first of the best plan of four transmissions; the later ones count 1 - r of their worth."""
        return cls(name="plan", r=r, turns=turns, epsilon=epsilon)

    @classmethod
    def triage(cls, *, turns: float = 4.0, epsilon: float = BOLD_EPSILON) -> "Strategy":
        """The most urgent first while there is time for all at `turns` transmissions each; otherwise the dearest."""
        return cls(name="triage", turns=turns, epsilon=epsilon)

    @property
    def code(self) -> int:
        """The number that compiled decisions know the strategy by; PC is EBPC with r = 0, the look-ahead EBPC too."""
        return _CODES[self.name]

    @property
    def quantile(self) -> float:
        """The normal quantile at 1 - epsilon, for `deletion_time`; infinite if only expired events are deleted."""
        from scipy.special import ndtri  # takes long to load, and only queues ask

        return -float(ndtri(self.epsilon))

    def postponed_s(self, turn_s: float) -> float:
        """How much later EB' looks, on a link where one transmission takes `turn_s` (FT: mean size x mean slowness)."""
        return self.turns * turn_s


STRATEGIES: Mapping[str, Callable[..., Strategy]] = MappingProxyType(
    {
        "fifo": Strategy.fifo,
        "rl": Strategy.rl,
        "eb": Strategy.eb,
        "pc": Strategy.pc,
        "ebpc": Strategy.ebpc,
        "lookahead": Strategy.lookahead,
        "plan": Strategy.plan,
        "triage": Strategy.triage,
    }
)


def strategy(name: str, *, r: float | None = None) -> Strategy:
    """The strategy of this name, as scenarios write it: `ebpc` needs `r`, the others take none."""
    if name not in STRATEGIES:
        raise ConfigurationError(_unknown(name))
    if name == "ebpc":
        if r is None:
            raise ConfigurationError('scheduling by "ebpc" needs `r`, the weight of EB from 0 to 1, such as r = 0.6')
        return Strategy.ebpc(r)
    if r is not None:
        raise ConfigurationError(f'`r` belongs to "ebpc"; leave it out with "{name}"')
    return STRATEGIES[name]()


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(str(name), _CODES, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(_CODES)}"
    return f"there is no scheduling strategy {name!r}; {hint}"
