"""A plan of `tidings place`, applied: which clients of a live network its moves are about.

A trace of a live network calls a publisher `client/epoch` and a subscription `client/name`. A client moves as a whole,
so of several moves of one client the first, which gains most, is the one that is made.
"""

from typing import Final

from tidings.placement import Move, Plan

__all__ = ["client_moves", "client_of"]

_SEPARATOR: Final = "/"


def client_of(move: Move) -> str:
    """The client that a move is about."""
    client, separator, _ = move.name.rpartition(_SEPARATOR)
    return client if separator else move.name


def client_moves(plan: Plan) -> tuple[dict[str, str], list[Move]]:
    """Where each client should be, and the moves that are not made because a better one of the same client is."""
    moves = {client_of(move): move.target for move in reversed(plan.moves)}  # the first of a client counts
    return moves, [move for move in plan.moves if moves[client_of(move)] != move.target]
