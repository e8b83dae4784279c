"""Somebody who speaks raw bytes to a broker process, and keeps to no rule but its own; and somebody who listens in a
broker's place."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tidings.protocol.node import Answer, Preamble, Proof, Splitter, joined

NONCE = b"n" * 32


class Raw:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames: list[bytes] = []
        self.came = b""
        self._splitter = Splitter(1 << 24)

    @classmethod
    async def to(cls, address: str) -> "Raw":
        host, port = address.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, *frames: Any) -> None:
        """Frames as they are, or messages of the opening."""
        self.writer.write(joined([f if isinstance(f, bytes) else msgspec.msgpack.encode(f) for f in frames]))

    async def frame(self) -> bytes | None:
        """The next frame; None when the other end has closed the connection."""
        while not self.frames:
            try:
                data = await self.reader.read(65_536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self.came += data
            self.frames += self._splitter.feed(data)
        return self.frames.pop(0)

    async def answer(self) -> Answer:
        frame = await self.frame()
        assert frame is not None, "the connection was closed without an answer"
        return msgspec.msgpack.decode(frame, type=Answer)

    async def is_closed(self) -> bool:
        """Whether the other end closes the connection, whatever it says before."""
        with contextlib.suppress(Exception):  # what comes may be no frames of this version
            while await self.frame() is not None:
                pass
        self.close()
        return True

    def close(self) -> None:
        self.writer.close()


async def refusal(address: str, said: Preamble, *then: Any) -> str:
    """Say this, and this if challenged: the code by which one is refused; empty if one is let in."""
    raw = await Raw.to(address)
    try:
        raw.send(said)
        answer = await raw.answer()
        if answer.nonce:
            raw.send(*(then or (Proof(b""),)))
            answer = await raw.answer()
        return answer.code
    finally:
        raw.close()


class Fake:
    """Listens at a port in a broker's place; keeps all that it is sent, and answers by `answers`, one to each frame."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers
        self.heard: list[bytes] = []
        self.frames: list[bytes] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = Raw(reader, writer)
        number = 0
        try:
            while (frame := await raw.frame()) is not None:
                self.frames.append(frame)
                if number < len(self.answers):
                    raw.send(self.answers[number])
                number += 1
        except Exception:
            pass  # whoever came is gone
        finally:
            self.heard.append(raw.came)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self.serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    @contextlib.asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator["Fake"]:
        server = await asyncio.start_server(self.accept, "127.0.0.1", port)
        try:
            yield self
        finally:
            server.close()
            while serving := list(self._serving):
                for task in serving:
                    task.cancel()
                await asyncio.gather(*serving, return_exceptions=True)
