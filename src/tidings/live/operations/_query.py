"""The state of a network: all brokers of the file are asked at once, and those that do not answer are down.

The subscriptions at a broker that is down come from another broker: brokers know what each other's clients want.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.errors import TidingsError
from tidings.live.configuration._config import Network
from tidings.live.security._tls import dialling_context
from tidings.live.transport._question import PATIENCE_S, ask
from tidings.protocol.node import Answer, Credentials, Preamble

__all__ = ["ask_network", "put_question"]


async def ask_network(
    network: Network, *, patience_s: float = PATIENCE_S, known: Mapping[str, dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """The state of each broker, in the order of the file: its status, or `down` with the reason.

    A broker that does not answer within `patience_s` is down; one whose status is `known` is not asked.
    """
    statuses = known or {}
    token = next((token.secret for token in network.tokens), None)  # without tokens anybody may ask

    async def ask_one(name: str) -> dict[str, Any]:
        if name in statuses:
            return {"up": True, **statuses[name]}
        try:
            async with asyncio.timeout(patience_s):
                return await _ask(network, name, token)
        except TimeoutError:
            return _down(network, name, f"it did not answer within {patience_s:g} s")

    found = list(await asyncio.gather(*(ask_one(name) for name in network.brokers)))
    elsewhere = await _ask_elsewhere(network, {broker["name"]: broker["up"] for broker in found}, token, patience_s)
    return [{**broker, **elsewhere.get(broker["name"], {})} for broker in found]


async def _ask(network: Network, name: str, token: str | None) -> dict[str, Any]:
    try:
        answer = await put_question(network, name, Preamble("status", "status"), token)
        status: dict[str, Any] = msgspec.json.decode(answer.detail)
        return {"up": True, **status}
    except TidingsError as error:
        return _down(network, name, str(error))


async def _ask_elsewhere(
    network: Network, is_up: Mapping[str, bool], token: str | None, patience_s: float
) -> dict[str, dict[str, Any]]:
    """The subscriptions at each broker that is down, as known by a neighbour, or else by any broker that is up."""
    up = [name for name in is_up if is_up[name]]
    questions: dict[str, list[str]] = defaultdict(list)
    for name in is_up:
        near = [other for other in up if other in network.links[name]] or up
        if not is_up[name] and near:
            questions[near[0]].append(name)

    async def ask(name: str, about: list[str]) -> dict[str, dict[str, Any]]:
        try:
            async with asyncio.timeout(patience_s):
                question = Preamble("status", "status", detail=msgspec.msgpack.encode(about))
                answer = msgspec.json.decode((await put_question(network, name, question, token)).detail)
        except (TidingsError, TimeoutError):
            return {}
        return dict(answer.get("elsewhere", {}))

    found: dict[str, dict[str, Any]] = {}
    for answer in await asyncio.gather(*(ask(name, about) for name, about in questions.items())):
        found |= answer
    return found


def _down(network: Network, name: str, why: str) -> dict[str, Any]:
    """Why a broker does not answer, and its neighbours according to the file."""
    return {
        "up": False,
        "name": name,
        "why": why,
        "absent": sorted(network.links[name]),
        "subscribers": [],
        "subscribers_left_off": 0,
    }


async def put_question(network: Network, name: str, question: Preamble, token: str | None) -> Answer:
    """What a broker answers to the first and only frame of a connection; a TidingsError if it does not."""
    tls = network.tls_of(name)
    return await ask(
        network.broker(name).reached_at,
        question,
        Credentials(token=token),
        tls=None if tls is None else dialling_context(tls),
        server_name=name,
    )
