"""The two tables in which subscriptions and content travel, and what is written at the end.

`WANTED`: a row for each subscription and each content that it ever matches, with the share of the events that do; a
subscription that nothing matches has one row, without a content. `ASKED`: a row for each kind of events of a content,
with its share and the brokers that have somebody who wants it; what came from different blocks of subscriptions is
several rows of the same cell. `slice` bounds how many cells are worked on at once, and fixes the order in which their
shares are added up, whatever the partitioning.
"""

from typing import Final

__all__ = ["ASKED", "MASSES", "MATCHED", "PARTS", "SUBSCRIBERS", "WANTED"]

WANTED: Final = "content int, subscription string, home int, max_delay_s double, share double"
ASKED: Final = "content int, slice int, cell bigint, share double, homes array<int>"
MATCHED: Final = f"{WANTED}, slice int, cell bigint, homes array<int>"
"""Both in one, as a task returns them: rows of ASKED have a cell."""
MASSES: Final = "publisher int, slice int, masses binary"
PARTS: Final = "subscription string, home int, publisher int, rate_per_s double, on_time_per_s double"
SUBSCRIBERS: Final = (
    "subscription string, broker string, on_time_reliability double, matched_per_s double, mean_delay_s double, "
    "path array<string>, overloaded_at string"
)
