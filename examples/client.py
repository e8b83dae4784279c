"""Publish and subscribe from Python. Shows: filters, deadlines of both sides, and what comes late.

    tidings up examples/live/network.toml          # in another terminal
    python examples/client.py 127.0.0.1:7001 127.0.0.1:7003

The first address is the publisher's broker, the second the subscriber's.
"""

import asyncio
import sys

import tidings

QUOTES = [("YHOO", 17.2), ("IBM", 121.0), ("YHOO", 19.8), ("YHOO", 24.5), ("MSFT", 31.7), ("YHOO", 16.9)]


async def main(publisher: str, subscriber: str) -> int:
    """Send some quotes, and print those that somebody wanted; the number of them that came in time."""
    async with (
        tidings.connect(publisher, name="exchange") as sender,
        tidings.connect(subscriber, name="desk") as reader,
    ):
        await sender.advertise("price > 0")
        wanted = await reader.subscribe("symbol = 'YHOO' AND price < 20", max_delay_s=2.0)
        await asyncio.sleep(1.0)  # until the brokers in between know the subscription
        for symbol, price in QUOTES:
            await sender.publish({"symbol": symbol, "price": price}, lifetime_s=5.0)
        on_time = 0
        expected = sum(symbol == "YHOO" and price < 20 for symbol, price in QUOTES)
        for _ in range(expected):
            event = await asyncio.wait_for(anext(wanted), timeout=10.0)
            on_time += not event.late
            print(f"{event.attributes} after {1000 * event.age_s:.1f} ms{', too late' if event.late else ''}")
        print(f"{on_time} of {expected} on time")
        return on_time


if __name__ == "__main__":
    addresses = sys.argv[1:] or ["127.0.0.1:7001", "127.0.0.1:7003"]
    asyncio.run(main(addresses[0], addresses[-1]))
