"""POP, phase 2: the walk to the broker that is closest to most subscribers (paper E, section 3.2 and Figure 2).

A relocation request goes from broker to broker, starting at the publisher's home. It moves on to the neighbour behind
which more subscribers are than at all other places together: the other neighbours, the broker itself, and what the
request has left behind. That is a strict majority, so a tie stays, and it never turns back to a broker that it has been
at. Where nobody has a majority, the walk ends: on a tree with true counts that is the broker of least total distance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Profile", "RelocationRequest", "next_broker", "walk"]


class Profile(Protocol):
    """What a broker knows of one publisher: a `ProfileTable`, or anything with the same two figures."""

    @property
    def local(self) -> float: ...

    @property
    def behind(self) -> Mapping[int, float]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RelocationRequest:
    """The message of the walk (RRM): how many subscribers lie behind it, and the brokers it came by, latest first."""

    left_behind: float = 0.0
    brokers: tuple[int, ...] = ()

    def passed(self, broker: int, left_there: float) -> "RelocationRequest":
        return RelocationRequest(left_behind=self.left_behind + left_there, brokers=(broker, *self.brokers))


def next_broker(profile: Profile, request: RelocationRequest) -> int | None:
    """The neighbour with more subscribers behind it than everywhere else; None: the walk ends here."""
    total = request.left_behind + profile.local + sum(profile.behind.values())
    for neighbour, count in sorted(profile.behind.items()):
        if neighbour not in request.brokers and count > total - count:
            return neighbour
    return None


def walk(home: int, profile_of: Callable[[int], Profile]) -> tuple[int, ...]:
    """The brokers of the walk from the publisher's home to where it belongs: the migration path, home first."""
    request, broker = RelocationRequest(), home
    while True:
        profile = profile_of(broker)
        following = next_broker(profile, request)
        if following is None:
            return (*reversed(request.brokers), broker)
        left_there = profile.local + sum(count for other, count in profile.behind.items() if other != following)
        request = request.passed(broker, left_there)
        broker = following
