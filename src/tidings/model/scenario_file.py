"""A network as a scenario file: drawn values are written out, so the file describes this network under any seed.

Every broker, link and client is listed separately, in the order of the network, with quantities in base units at full
precision. Reading the file gives the same network, and its simulation the same result.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tidings.errors import ConfigurationError, InputError
from tidings.model.distributions import DelayDistribution, Deterministic, Distribution
from tidings.model.documents import table_text
from tidings.model.failures import Failures
from tidings.model.policies import DEFAULT_RELOCATION
from tidings.model.scenario import Access, Choice, Constant, Content, Network, Numeric, Publisher
from tidings.model.scenario._distributions import FORMER_KEY, KEY, LIKE_THE_VARIABLE, PER_VARIABLE
from tidings.model.topology import Broker

__all__ = ["to_toml", "write_toml"]


def to_toml(network: Network) -> str:
    """The scenario file of this network; a ConfigurationError if no scenario can describe it."""
    parts = [table_text("", _head(network)), table_text("[topology]", _topology(network))]
    parts += [table_text("[[broker]]", row) for row in _brokers(network)]
    parts += [table_text("[[link]]", row) for row in _links(network)]
    parts += [table_text("[[publishers]]", _publisher(publisher)) for publisher in network.publishers]
    parts += [table_text("[[subscribers]]", row) for row in _subscribers(network)]
    parts.append(table_text("[policies]", _policies(network)))
    return "\n".join(parts)


def write_toml(network: Network, path: Path, *, comments: tuple[str, ...] = ()) -> None:
    """Write the file under a name beside it, and rename it when it is complete."""
    text = "".join(f"# {line}\n" for line in comments) + to_toml(network)
    temporary = path.with_name(f"_{path.name}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _head(network: Network) -> dict[str, Any]:
    found = {"title": network.title, "seed": network.seed, "duration": _quantity(network.duration_s, "s")}
    return found | ({"warmup": _quantity(network.warmup_s, "s")} if network.warmup_s else {})


def _topology(network: Network) -> dict[str, Any]:
    topology = network.topology
    return {
        "kind": "explicit",
        "brokers": [broker.name for broker in topology.brokers],
        "links": [[link.source, link.target] for link in topology.links],
        "direction": "forward",
    }


def _brokers(network: Network) -> Iterator[dict[str, Any]]:
    for broker, failures in zip(network.topology.brokers, network.broker_failures, strict=True):
        row = _broker(broker) | ({} if failures is None else {"failures": _failures(failures)})
        if row:
            yield {"name": broker.name} | row


def _broker(broker: Broker) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if broker.service is not None:
        found["service"] = _distribution(broker.service, "s")
    if broker.service_per != "event":
        found["service_per"] = broker.service_per
    if broker.processing is not None:
        found["processing"] = _distribution(broker.processing, "s")
    if broker.position is not None:
        found["position"] = list(broker.position)
    return found


def _links(network: Network) -> Iterator[dict[str, Any]]:
    topology = network.topology
    numbers = {(link.source, link.target): number for number, link in enumerate(topology.links)}
    members: dict[int, list[int]] = {}
    for number, component in enumerate(network.link_components):
        members.setdefault(component, []).append(number)
    for number, link in enumerate(topology.links):
        ends = {"source": link.source, "target": link.target, "direction": "forward"}
        row: dict[str, Any] = {"propagation": _distribution(link.propagation, "s")}
        if link.slowness is not None:
            row["slowness"] = _distribution(link.slowness, "s/kB")
        if link.loss:
            row["loss"] = link.loss
        yield ends | row
        failures = network.link_failures[number]
        together = members[network.link_components[number]]
        if failures is None or number != together[0]:
            continue
        back = numbers.get((link.target, link.source))
        if set(together) > {number, back}:
            raise ConfigurationError(
                f"link {link.source!r} -> {link.target!r} fails together with links of other pairs, which a scenario "
                "cannot describe; write the scenario by hand"
            )
        yield ends | {"direction": "both" if back in together else "forward", "failures": _failures(failures)}


def _publisher(publisher: Publisher) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": publisher.name,
        "at": publisher.broker,
        "interval": _distribution(publisher.interval, "s"),
        "size": _distribution(publisher.size_kb, "kB"),
    }
    if publisher.lifetime is not None:
        found["lifetime"] = _distribution(publisher.lifetime, "s")
    for key, by, unit in (("lifetime", publisher.lifetime_by, "s"), ("size", publisher.size_by, "kB")):
        if by is not None:
            found[key] = {
                "by": by.attribute,
                "distributions": {
                    name: _distribution(distribution, unit) for name, distribution in by.distributions.items()
                },
            }
    if publisher.day is not None:
        found["day"] = {"factors": list(publisher.day.factors), "period": _quantity(publisher.day.period_s, "s")}
    if publisher.access is not None:
        found["access"] = _access(publisher.access)
    if publisher.advertisement is not None:
        found["advertisement"] = _template(str(publisher.advertisement))
    found["attributes"] = {name: _content(content) for name, content in publisher.attributes.items()}
    return found


def _access(access: Access) -> dict[str, Any]:
    distributions = {"slowness": (access.slowness, "s/kB"), "propagation": (access.propagation, "s")}
    written: dict[str, Any] = {
        name: _distribution(distribution, unit)
        for name, (distribution, unit) in distributions.items()
        if distribution is not None
    }
    return written | {"loss": access.loss}


def _subscribers(network: Network) -> Iterator[dict[str, Any]]:
    names = [subscription.subscriber for subscription in network.subscriptions]
    if len(set(names)) != len(names) or set(names) != {subscriber.name for subscriber in network.subscribers}:
        raise ConfigurationError(
            "a scenario has exactly one subscription for each subscriber, and this network does not"
        )
    clients = {subscriber.name: subscriber for subscriber in network.subscribers}
    for subscription in network.subscriptions:
        row: dict[str, Any] = {
            "name": subscription.subscriber,
            "at": network.homes[subscription.subscriber],
            "filter": _template(str(subscription.filter)),
        }
        if subscription.max_delay_s is not None:
            row["max_delay"] = _quantity(subscription.max_delay_s, "s")
        if subscription.price != 1.0:
            row["price"] = subscription.price
        if (churn := clients[subscription.subscriber].churn) is not None:
            row["churn"] = {"stay": _distribution(churn.stay, "s"), "away": _distribution(churn.away, "s")}
        if (access := clients[subscription.subscriber].access) is not None:
            row["access"] = _access(access)
        yield row


def _policies(network: Network) -> dict[str, Any]:
    policies = network.policies
    faults = policies.faults
    found: dict[str, Any] = {
        "scheduling": _fields(policies.scheduling),
        "routing": policies.routing,
        "expired": policies.expired,
        "faults": {
            "scheme": faults.scheme,
            "refresh": _quantity(faults.refresh_s, "s"),
            "timeout": _quantity(faults.timeout_s, "s"),
            "retry": _quantity(faults.retry_s, "s"),
            "detection": _quantity(faults.detection_s, "s"),
            "ack": faults.ack,
            "queues": faults.queues,
            "tables": faults.tables,
        },
    }
    if policies.ordering is not None:
        found["ordering"] = policies.ordering
    if policies.relocation.name != DEFAULT_RELOCATION:
        relocation = _fields(policies.relocation)
        found["relocation"] = relocation | {"stay": _quantity(policies.relocation.stay_s, "s")}
    return found


def _failures(failures: Failures) -> dict[str, Any]:
    return {"up": _distribution(failures.up, "s"), "down": _distribution(failures.down, "s")}


def _distribution(distribution: DelayDistribution, unit: str) -> Any:
    if isinstance(distribution, Deterministic):
        return _quantity(distribution.value, unit)
    return {name: _parameter(name, value, unit) for name, value in _distribution_fields(distribution).items()}


def _parameter(name: str, value: Any, unit: str) -> Any:
    if isinstance(value, list | tuple):
        return [_parameter(name, item, unit) for item in value]
    if name in LIKE_THE_VARIABLE:
        return _quantity(value, unit)
    if name in PER_VARIABLE and unit == "s":
        return _quantity(value, "/s")
    return value


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return {name: held for name, held in msgspec.to_builtins(value).items() if held is not None}


def _distribution_fields(distribution: Distribution) -> dict[str, Any]:
    """Its name under the key of scenarios, and its parameters; other machine formats keep the key `law`."""
    fields = _fields(distribution)
    return {KEY: fields.pop(FORMER_KEY)} | fields


def _content(content: Content) -> Any:
    match content:
        case Constant():
            return content.value
        case Choice():
            weights = {"weights": list(content.probabilities)} if content.probabilities else {}
            return {"values": list(content.values)} | weights
        case Numeric():
            decimals = {} if content.decimals is None else {"decimals": content.decimals}
            return _distribution_fields(content.distribution) | {"offset": content.offset} | decimals


def _quantity(value: float, unit: str) -> str:
    return f"{float(value)!r} {unit}"


def _template(filter_text: str) -> str:
    """A filter text with its braces escaped, so that none begins a parameter."""
    return filter_text.replace("{", "{{").replace("}", "}}")
