"""The records of a network that fails, and the words for what is in them (see `simulation._layout` for the others).

Everything is a dense number; -1 is nobody. Components are numbered brokers first, then what fails as one among links.

- COMPONENT: up or down, how often it changed (`epoch`, so that a crash in between is noticed later), and its laws.
- CHANNEL: a directed link with its queue (one transmission at a time, first in first out) and the list of stored copies
  that wait because nobody answers (`blocked`).
- STATION: a broker with its queue, the copy being served, and the list of events held for subscriptions still unknown;
  where its links and table rows stand in the lists; whether its map has changed since it found its ways.
- COPY: one event on its way to one broker of its tree (`node`), over the tree's link or a detour. A *stored* copy stays
  with its sender until it is acknowledged or expires.
- ROW: one node of the paths that subscriptions take from their home to the publishers: the entry that the broker there
  has in its table for that home. Paths that begin alike share nodes, and one message refreshes them together.
- PLACE: a broker in a tree: its place in preorder, its depth, its first row as a home, its first BRANCH to a child.
- VIEW: what a broker knows of a link's sending end. WAY: the last link, the hops and the time to another broker.
- An event's words: a flag for each broker, then its groups (home, first and last entry), then the entries: the
  subscriptions that it matches, group by group in the order of its tree.
"""

from typing import Final

import numpy as np

from tidings.simulation._layout import CONTROLS

(
    TRANSMITTED,
    ARRIVED,
    SERVED,
    PROCESSED,
    TRANSITION,
    RETRY,
    EXPIRY,
    ACKED,
    REFRESH,
    ROW_ARRIVED,
    DETECTED,
    LINK_STATE,
    OFFERED,
    DETOURED,
    REROUTED,
) = range(15)
"""What happens at a time: to a channel, copy, station, copy, component, channel, copy, copy, home, row, channel, pair
of channels, held copy, blocked copy, broker."""
KIND_BITS: Final = 4
KINDS: Final = (1 << KIND_BITS) - 1

WANTED, ACCEPTED, SENT, DETOUR, DELIVERED, DISCARDED, UNDERWAY = (1 << bit for bit in range(7))
"""Flags of an event at a broker: subscribers there want it; the broker took it in; its parent sent it there; a detour
was tried; subscribers got it; a copy for it expired; a copy for it is left at the end."""

FLYING, QUEUED, BLOCKED, AWAITING, HELD = range(5)
"""Where a copy is: on its way or at its target, in its channel's queue, in its channel's list of blocked copies, taken
in by its target and not acknowledged, held at a broker."""

(
    DATA,
    ACKS,
    RETRANSMISSIONS,
    REFRESHES,
    LINK_STATES,
    DUPLICATES,
    STORED,
    STORED_PEAK,
    TRANSITIONS_OUT,
    CLOCK,
    CONTROLS_FAILING,
) = range(CONTROLS, CONTROLS + 11)
"""Counters beside those of every run: messages by kind, copies stored now and at most, rows of output, and the number
of the last change that anybody noticed."""

(
    BROKERS,
    LINKS,
    WARMUP,
    END,
    RETRY_NS,
    REFRESH_NS,
    TIMEOUT_NS,
    DETECTION_NS,
    IS_BUFFERING,
    IS_BYPASSING,
    IS_EARLY,
    IS_VOLATILE,
    IS_DROPPING,
    SETTINGS,
) = range(14)
"""Places in the array of what a run is told."""

MESSAGES: Final = {
    "data": DATA,
    "ack": ACKS,
    "retransmission": RETRANSMISSIONS,
    "refresh": REFRESHES,
    "link-state": LINK_STATES,
}

COMPONENT = np.dtype(
    [
        ("up", np.int64),
        ("epoch", np.int64),
        ("changed", np.int64),
        ("up_law", np.int64),
        ("down_law", np.int64),
        ("first_link", np.int64),
        ("last_link", np.int64),
    ],
    align=True,
)
CHANNEL = np.dtype(
    [
        ("source", np.int64),
        ("target", np.int64),
        ("reverse", np.int64),
        ("component", np.int64),
        ("head", np.int64),
        ("tail", np.int64),
        ("sending", np.int64),
        ("sent_at", np.int64),
        ("blocked_head", np.int64),
        ("blocked_tail", np.int64),
        ("blocked_since", np.int64),
        ("is_free", np.int64),
        ("slowness", np.int64),
        ("propagation", np.int64),
        ("loss", np.int64),
        ("loss_chance", np.float64),
        ("control_ns", np.int64),
        ("busy_ns", np.int64),
    ],
    align=True,
)
STATION = np.dtype(
    [
        ("head", np.int64),
        ("tail", np.int64),
        ("serving", np.int64),
        ("served_at", np.int64),
        ("held_head", np.int64),
        ("held_tail", np.int64),
        ("has_service", np.int64),
        ("has_processing", np.int64),
        ("service", np.int64),
        ("processing", np.int64),
        ("table", np.float64),
        ("busy_ns", np.int64),
        ("first_out", np.int64),
        ("last_out", np.int64),
        ("first_row", np.int64),
        ("last_row", np.int64),
        ("root", np.int64),
        ("is_dirty", np.int64),
        ("is_waiting", np.int64),
    ],
    align=True,
)
EVENT = np.dtype(
    [
        ("published", np.int64),
        ("sequence", np.int64),
        ("lifetime", np.int64),
        ("expires", np.int64),
        ("size_kb", np.float64),
        ("publisher", np.int64),
        ("tree", np.int64),
        ("start", np.int64),
        ("groups", np.int64),
        ("block", np.int64),
        ("copies", np.int64),
        ("is_counted", np.int64),
        ("is_sampled", np.int64),
    ],
    align=True,
)
COPY = np.dtype(
    [
        ("event", np.int64),
        ("node", np.int64),
        ("link", np.int64),
        ("place", np.int64),
        ("is_stored", np.int64),
        ("is_detour", np.int64),
        ("hops_left", np.int64),
        ("enqueued", np.int64),
        ("sent", np.int64),
        ("received", np.int64),
        ("began", np.int64),
        ("link_epoch", np.int64),
        ("source_epoch", np.int64),
        ("target_epoch", np.int64),
        ("next", np.int64),
        ("previous", np.int64),
    ],
    align=True,
)
ROW = np.dtype(
    [
        ("until", np.int64),
        ("broker", np.int64),
        ("link", np.int64),
        ("first_child", np.int64),
        ("last_child", np.int64),
    ],
    align=True,
)
PLACE = np.dtype(
    [
        ("position", np.int64),
        ("end", np.int64),
        ("depth", np.int64),
        ("first_row", np.int64),
        ("first_child", np.int64),
    ],
    align=True,
)
BRANCH = np.dtype([("broker", np.int64), ("link", np.int64)], align=True)
PUBLISHER = np.dtype([("tree", np.int64), ("link", np.int64)], align=True)
VIEW = np.dtype([("up", np.int64), ("seq", np.int64)], align=True)
WAY = np.dtype([("back", np.int64), ("hops", np.int64), ("ns", np.int64)], align=True)
TRANSITION_OUT = np.dtype([("component", np.int64), ("at", np.int64), ("up", np.int64)], align=True)
