"""What a paper says and what we found, in one shape for all papers."""

from collections.abc import Sequence

import msgspec
import numpy as np

__all__ = ["Claim", "claim"]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One figure: the paper's (None where it gives none), ours, and how far ours varies over topologies."""

    id: str
    paper: float | None
    measured: float | None
    unit: str
    sd: float | None = None
    note: str = ""


def claim(id: str, values: Sequence[float], *, unit: str, paper: float | None = None, note: str = "") -> Claim:
    """The mean over topologies and their standard deviation."""
    known = np.array(values, float)
    sd = float(known.std(ddof=1)) if len(known) > 1 else None
    return Claim(id=id, paper=paper, measured=float(known.mean()), unit=unit, sd=sd, note=note)
