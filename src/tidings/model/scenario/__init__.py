"""Scenarios: a network, its traffic and its policies in one TOML file (docs/reference/scenarios.md).

`Scenario.load(path)` reads and checks the document; `scenario.expand(seed)` makes every random choice and returns the
`Network` that simulations, predictions and live runs start from.
"""

from tidings.model.scenario._by_content import ByContent
from tidings.model.scenario._content import AttributeValue, Choice, Constant, Content, Numeric
from tidings.model.scenario._day import Day
from tidings.model.scenario._faults import Faults, Scheme
from tidings.model.scenario._network import Access, Churn, Network, Publisher, Subscriber
from tidings.model.scenario._paths import unserved
from tidings.model.scenario._scenario import Scenario
from tidings.model.scenario._schema import Document, Policies, Relocating, Scheduling
from tidings.model.scenario._summary import PublisherSummary, SubscriberSummary, Summary, summarise

__all__ = [
    "Access",
    "AttributeValue",
    "ByContent",
    "Choice",
    "Churn",
    "Constant",
    "Content",
    "Day",
    "Document",
    "Faults",
    "Network",
    "Numeric",
    "Policies",
    "Publisher",
    "PublisherSummary",
    "Relocating",
    "Scenario",
    "Scheduling",
    "Scheme",
    "Subscriber",
    "SubscriberSummary",
    "Summary",
    "summarise",
    "unserved",
]
