"""Inputs from a corpus by plain mutation: the same seed gives the same inputs, and nothing has to be installed."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

__all__ = ["CORPUS", "corpus_of", "mutated"]

CORPUS: Final = Path(__file__).parent / "corpus"
_LONGEST: Final = 8_192
_TELLING: Final = (
    *(bytes([value]) for value in (0x00, 0x7F, 0x80, 0x90, 0xC0, 0xC1, 0xC4, 0xD9, 0xDC, 0xDF, 0xFF)),
    *(b"\xcf" + value.to_bytes(8, "big") for value in (0, 2**31, 2**53 + 1, 2**63, 2**64 - 1)),
    *(b"\xd3" + value.to_bytes(8, "big", signed=True) for value in (-1, -(2**63))),
    *(head + bytes(6) for head in (b"\xcb\x7f\xf0", b"\xcb\x7f\xf8", b"\xcb\xff\xf0")),
    *(b"'", b'"', b"(", b")", b" AND ", b" NOT ", b" LIKE ", b"%", b" IN (", b"1e309", b"-"),
    *(b"\xf0\x9f\x99\x82", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n"),
    *(b"[[broker]]\n", b"[limits]\n", b"= true\n", b"0x7fffffffffffffff", b"nan", b"-inf", b"1e400", b" s", b" MB"),
)
"""What parsers may stumble over: lengths and numbers at their ends, quotes, words of the languages."""


def corpus_of(target: str) -> list[bytes]:
    """The inputs that are kept for a target, in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


def mutated(corpus: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """So many inputs, each made of one or two of the corpus by a few changes."""
    dice = random.Random(seed)
    for _ in range(count):
        data = bytearray(dice.choice(corpus))
        for _ in range(1 + min(int(dice.expovariate(0.7)), 8)):
            _change(data, corpus, dice)
        yield bytes(data[:_LONGEST])


def _change(data: bytearray, corpus: Sequence[bytes], dice: random.Random) -> None:
    place = dice.randrange(len(data) + 1)
    end = min(place + 1 + int(dice.expovariate(0.2)), len(data))
    match dice.randrange(8):
        case 0 if place < len(data):
            data[place] ^= 1 << dice.randrange(8)
        case 1 if place < len(data):
            data[place] = dice.randrange(256)
        case 2:
            del data[place:end]
        case 3:
            data[place:place] = data[place:end] * dice.choice((1, 1, 2, 20))
        case 4:
            data[place:place] = dice.choice(_TELLING)
        case 5:
            data[place:end] = dice.choice(_TELLING)
        case 6:
            other = dice.choice(corpus)
            data[place:] = other[dice.randrange(len(other) + 1) :]
        case _:
            data[place:end] = dice.randbytes(end - place)
