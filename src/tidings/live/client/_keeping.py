"""The connections of a client: each is opened again whenever it is lost, until nobody wants it any more.

The first leads to the address that the application gave. Brokers tell whom they admit who they are and where the others
are, so that a client which moves to another home broker (`Connect`) finds it; where one has been added since, they are
asked again.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from typing import Final

import msgspec

from tidings.errors import TidingsError
from tidings.live._errors import ConnectionLostError, DeniedError
from tidings.live.broker._admission import GRACE_S, Answer, Preamble
from tidings.live.configuration._schema import Address
from tidings.live.transport._connection import Connection
from tidings.live.transport._dialling import backoff_s, dial, keep_connected

__all__ = ["Directory", "Keeper"]

LEAST_GRACE_S: Final = 1.0
"""A broker has at least so long to answer, however little time is left for the first connection."""


class Directory(msgspec.Struct, frozen=True, array_like=True):
    """What a broker tells a client that it admits: its own name, and where the brokers of the network are reached."""

    name: str
    addresses: dict[str, Address]


class Keeper:
    """The connections of one client; `attach` is given each of them with the name of the broker at its other end."""

    def __init__(
        self,
        preamble: Preamble,
        *,
        max_frame_bytes: int,
        tls: ssl.SSLContext | None,
        attach: Callable[[Connection, str], None],
        denied: Callable[[DeniedError], None],
    ) -> None:
        self.addresses: dict[str, Address] = {}
        self._preamble = preamble
        self._max_frame_bytes = max_frame_bytes
        self._tls = tls
        self._attach = attach
        self._denied = denied
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by broker
        self._losses: dict[str, asyncio.Event] = {}  # by connection
        self._open: dict[str, Connection] = {}  # by broker
        self._numbers = 0

    async def begin(self, address: Address, server_name: str | None, connect_s: float) -> None:
        """Connect for the first time; DeniedError or ConnectionLostError if that cannot be done in time."""
        until_s = time.monotonic() + connect_s
        for wait_s in backoff_s():
            grace_s = min(GRACE_S, max(until_s - time.monotonic(), LEAST_GRACE_S))
            try:
                name, loss = await self._dial(address, server_name, grace_s)
            except ConnectionLostError:
                if time.monotonic() + wait_s > until_s:
                    raise
                await asyncio.sleep(wait_s)
            else:
                self._tasks[name] = asyncio.create_task(self._keep(address, server_name, loss))
                return

    def connect(self, broker: str) -> None:
        """Have a connection with this broker; one that nobody knows yet is asked for until somebody does."""
        if broker not in self._tasks:
            self._tasks[broker] = asyncio.create_task(self._find(broker))

    async def _find(self, broker: str) -> None:
        for wait_s in backoff_s():
            if broker not in self.addresses:
                await self.learn()
            if broker in self.addresses:
                break
            await asyncio.sleep(wait_s)
        await self._keep(self.addresses[broker], broker, None)

    async def learn(self) -> None:
        """Ask the brokers that are known where all brokers are by now: some may have been added."""
        question = msgspec.structs.replace(self._preamble, kind="directory")

        def ready(connection: Connection, answer: Answer) -> None:
            self._told(connection, answer)

        for name in [*self._open]:
            with contextlib.suppress(ConnectionLostError, DeniedError):
                await dial(
                    self.addresses[name],
                    question,
                    name="directory",
                    max_frame_bytes=self._max_frame_bytes,
                    ready=ready,
                    tls=self._tls,
                    server_name=name,
                )

    def disconnect(self, broker: str) -> None:
        """Have none any more."""
        task = self._tasks.pop(broker, None)
        if task is not None:
            task.cancel()
        connection = self._open.pop(broker, None)
        if connection is not None:
            # In the next turn: the machine is in the middle of a step, and a closed connection is one more.
            asyncio.get_running_loop().call_soon(connection.close, "the client has moved")

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        if self._open.get(connection.peer) is connection:
            del self._open[connection.peer]
        if connection.name in self._losses:
            self._losses.pop(connection.name).set()

    def end(self) -> None:
        """Open no more connections."""
        for task in self._tasks.values():
            task.cancel()

    async def _keep(self, address: Address, server_name: str | None, loss: asyncio.Event | None) -> None:
        async def dial_once() -> asyncio.Event:
            return (await self._dial(address, server_name))[1]

        await keep_connected(dial_once, what=str(address), failed=self._goes_on, loss=loss)

    def _goes_on(self, error: TidingsError) -> bool:
        """Whether another try may succeed: a broker that refuses the client will refuse it again."""
        if isinstance(error, DeniedError):
            self._denied(error)
            return False
        return True

    def _told(self, connection: Connection, answer: Answer) -> str:
        """Where all brokers are, by one of them; its name."""
        try:
            directory = msgspec.msgpack.decode(answer.detail, type=Directory)
        except msgspec.MsgspecError as error:
            raise DeniedError("malformed", f"{connection.address} does not say which broker it is: {error}") from None
        self.addresses |= directory.addresses
        return directory.name

    async def _dial(
        self, address: Address, server_name: str | None, grace_s: float = GRACE_S
    ) -> tuple[str, asyncio.Event]:
        """A connection: the broker's name, and what tells when it is lost."""
        self._numbers += 1
        loss = asyncio.Event()
        name = f"broker-{self._numbers}"
        found = ""

        def ready(connection: Connection, answer: Answer) -> None:
            nonlocal found
            found = self._told(connection, answer)
            self._losses[name] = loss
            self._open[found] = connection
            self._attach(connection, found)

        await dial(
            address,
            self._preamble,
            name=name,
            max_frame_bytes=self._max_frame_bytes,
            ready=ready,
            tls=self._tls,
            server_name=server_name,
            grace_s=grace_s,
        )
        return found, loss
