"""The vocabulary: filters, subscriptions, topologies, distributions, scenarios, the table of policies.

Names load on first use, so that importing this package costs nothing: reading a filter must not load what only a
topology generator needs.
"""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.model.distributions import Distribution
    from tidings.model.filters import Filter
    from tidings.model.scenario import Network, Publisher, Scenario, Subscriber
    from tidings.model.subscription import Subscription
    from tidings.model.topology import Broker, Link, Topology

__all__ = [
    "Broker",
    "Distribution",
    "Filter",
    "Link",
    "Network",
    "Publisher",
    "Scenario",
    "Subscriber",
    "Subscription",
    "Topology",
]

__getattr__, __dir__ = lazily(__name__)
