"""Which clients of a live network the moves of a `tidings place` plan concern.

A trace of a live network names a publisher `client/epoch` and a subscription `client/name`. A client moves as a whole,
so if a plan has several moves of one client, only the first, which gains most, is made.
"""

from typing import Final

from tidings.placement import Move, PlacementPlan

__all__ = ["client_moves", "client_of"]

_SEPARATOR: Final = "/"


def client_of(move: Move) -> str:
    """The client that a move concerns."""
    client, separator, _ = move.name.rpartition(_SEPARATOR)
    return client if separator else move.name


def client_moves(plan: PlacementPlan) -> tuple[dict[str, str], list[Move]]:
    """Where each client should be, and the moves that are left out because the same client has a better one."""
    moves = {client_of(move): move.target for move in reversed(plan.moves)}  # the first of a client counts
    return moves, [move for move in plan.moves if moves[client_of(move)] != move.target]
