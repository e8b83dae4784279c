"""GRAPE in the overlay: trace sessions, and the brokers' answers about them (paper E, sections 4.1, 4.2).

Rules:

- The home broker traces `relocation_events` consecutive events of a publisher, numbered by that publisher's own count,
  waits `relocation_wait_ns` for the last of them to arrive, and asks the neighbours that it sent any of them to
  (`TraceRequest`). Each asks its own neighbours in the same manner and returns its own answer with theirs
  (`TraceAnswer`).
- Each hop leaves a quarter of the patience to the one before; at half of it, neighbours that have not answered are
  asked again. A neighbour that has not answered at the end is not part of the session, and neither are the brokers
  behind it.
- All candidates, the present home included, are compared by `placement.evaluate`, and one is chosen by
  `placement.select` with the hysteresis of the settings. The time from the publisher to any broker is assumed to be
  that to its home: clients measure the link to their home only.
- A broker asks others once for each session, and answers only the neighbour that its events came from: routes may have
  changed meanwhile, and questions must not travel in circles. Notes and answers are kept until the publisher's next
  session begins, so that a repeated question gets the same answer.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidings import placement
from tidings.protocol import wire
from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings

__all__ = ["Grape", "decide"]


class _Session(NamedTuple):
    """One session of one publisher, at one home."""

    root: str
    publisher: str
    epoch: int
    session: int


class _Notes:
    """What this broker noted of a session: deliveries, the neighbour that events came from, and those they were sent
    to."""

    __slots__ = ("answers", "log", "onward", "session", "upstream")

    def __init__(self, session: _Session, upstream: str) -> None:
        self.session = session
        self.upstream = upstream
        self.log = placement.SessionLog(wire.MAX_TRACED)
        self.onward: set[str] = set()
        self.answers: tuple[wire.Answer, ...] | None = None  # once it was asked for


class _Survey:
    """Answers that are being collected; `upstream` is the neighbour that asked, empty at the home broker."""

    __slots__ = ("again_ns", "answers", "due_ns", "patience_ns", "upstream", "waiting")

    def __init__(self, upstream: str, waiting: set[str], patience_ns: int, now_ns: int) -> None:
        self.upstream = upstream
        self.waiting = waiting
        self.patience_ns = patience_ns
        self.again_ns = now_ns + patience_ns // 2
        self.due_ns = now_ns + patience_ns
        self.answers: list[wire.Answer] = []


class _Own:
    """A publisher that is at home here, and its session: the events traced so far, and when it ends."""

    __slots__ = ("ends_ns", "session", "traced")

    def __init__(self, session: _Session) -> None:
        self.session = session
        self.traced = 0
        self.ends_ns: int | None = None


class Grape:
    """One broker's part. `send_to` sends to a neighbour by name; `times` are from here to a client and each
    neighbour."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        send_to: Callable[[str, wire.Message], bool],
        ask_to_move: Callable[[str, str], bool],
        times: Callable[[], tuple[int, dict[str, int]]],
        client_ns: Callable[[str], int],
        wake_at: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._send_to = send_to
        self._ask_to_move = ask_to_move
        self._times = times
        self._client_ns = client_ns
        self._wake_at = wake_at
        self._own: dict[str, _Own] = {}
        self._notes: dict[str, _Notes] = {}  # by publisher: of its latest session
        self._surveys: dict[_Session, _Survey] = {}

    def __len__(self) -> int:
        return max(len(self._own), len(self._notes), len(self._surveys))

    def tag(self, id: EventId, now_ns: int) -> wire.Trace | None:
        """The number in its session of an event that is published here; None while a session is being evaluated."""
        publisher, epoch, sequence = id
        own = self._own.get(publisher)
        if own is None or own.session.epoch != epoch:
            own = self._own[publisher] = _Own(_Session(self._settings.name, publisher, epoch, sequence))
            while len(self._own) > self._settings.max_traces:
                del self._own[next(iter(self._own))]
        if own.ends_ns is not None:
            return None
        trace = wire.Trace(own.session.session, own.traced)
        own.traced += 1
        if own.traced == self._settings.relocation_events:
            own.ends_ns = now_ns + self._settings.relocation_wait_ns
            self._wake_at(own.ends_ns)
        return trace

    def taken(self, id: EventId, root: str, trace: wire.Trace, upstream: str, local: int, onward: set[str]) -> None:
        """A traced event was taken on, given to `local` clients here, and sent to these neighbours."""
        session = _Session(root, id[0], id[1], trace.session)
        notes = self._notes.get(id[0])
        if notes is None or notes.session != session:
            if notes is not None and notes.session.root == root and notes.session[2:] > session[2:]:
                return  # of a session that has ended
            notes = self._notes[id[0]] = _Notes(session, upstream)
            while len(self._notes) > self._settings.max_traces:
                del self._notes[next(iter(self._notes))]
        assert trace.number is not None
        notes.log.delivered(trace.number, local)
        notes.onward |= onward - {notes.upstream}

    def on_request(self, source: str, message: wire.TraceRequest, now_ns: int) -> None:
        """The neighbour that the events came from asks for the notes on them.

        Any other neighbour gets an empty answer: where routes have changed, events travel in circles, and questions
        must not.
        """
        session = _Session(message.root, message.publisher, message.epoch, message.session)
        notes = self._notes.get(message.publisher)
        if notes is None or notes.session != session or notes.upstream != source:
            self._send_to(source, wire.TraceAnswer(*session, ()))
        elif notes.answers is not None:
            self._send_to(source, wire.TraceAnswer(*session, notes.answers))
        elif session not in self._surveys:
            self._begin(session, source, message.patience_ns, now_ns)

    def on_answer(self, source: str, message: wire.TraceAnswer) -> None:
        """A neighbour has answered, for all brokers behind it."""
        session = _Session(message.root, message.publisher, message.epoch, message.session)
        survey = self._surveys.get(session)
        if survey is not None and source in survey.waiting:
            survey.waiting.discard(source)
            survey.answers += message.answers
            if not survey.waiting:
                self._finish(session, survey)

    def on_time(self, now_ns: int) -> None:
        """End sessions, ask again, and finish without those that have not answered."""
        for own in list(self._own.values()):
            if own.ends_ns is not None and own.session not in self._surveys:
                if own.ends_ns <= now_ns:
                    self._begin(own.session, "", self._settings.relocation_wait_ns, now_ns)
                else:
                    self._wake_at(own.ends_ns)
        for session, survey in list(self._surveys.items()):
            if survey.due_ns <= now_ns:
                self._finish(session, survey)
                continue
            if survey.again_ns <= now_ns:
                survey.again_ns = survey.due_ns
                self._ask(session, survey)
            self._wake_at(survey.again_ns)

    def forget(self, publisher: str) -> None:
        """A client is no longer at home here."""
        self._own.pop(publisher, None)

    def _begin(self, session: _Session, upstream: str, patience_ns: int, now_ns: int) -> None:
        notes = self._notes.get(session.publisher)
        onward = notes.onward if notes is not None and notes.session == session else set()
        survey = _Survey(upstream, set(onward), patience_ns, now_ns)
        if len(self._surveys) >= self._settings.max_traces:
            return
        self._surveys[session] = survey
        self._ask(session, survey)
        if survey.waiting:
            self._wake_at(survey.again_ns)
        else:
            self._finish(session, survey)

    def _ask(self, session: _Session, survey: _Survey) -> None:
        request = wire.TraceRequest(*session, survey.patience_ns * 3 // 4)
        survey.waiting = {name for name in sorted(survey.waiting) if self._send_to(name, request)}

    def _finish(self, session: _Session, survey: _Survey) -> None:
        del self._surveys[session]
        answers = (self._own_answer(session), *survey.answers)[: wire.MAX_TARGETS]
        notes = self._notes.get(session.publisher)
        if notes is not None and notes.session == session:
            notes.answers = answers
        if survey.upstream:
            self._send_to(survey.upstream, wire.TraceAnswer(*session, answers))
            return
        own = self._own.pop(session.publisher, None)  # the next event begins the next session
        if own is not None and own.session == session:
            decision, names = decide(answers, self._settings, self._client_ns(session.publisher))
            if decision.moves:
                self._ask_to_move(session.publisher, names[decision.target])

    def _own_answer(self, session: _Session) -> wire.Answer:
        to_client_ns, onward_ns = self._times()
        notes = self._notes.get(session.publisher)
        if notes is None or notes.session != session:
            return wire.Answer(self._settings.name, "", b"", 0, to_client_ns, onward_ns)
        bits = notes.log.words.astype("<u8").tobytes().rstrip(b"\0")
        return wire.Answer(self._settings.name, notes.upstream, bits, notes.log.deliveries, to_client_ns, onward_ns)


def decide(
    answers: Iterable[wire.Answer], settings: BrokerSettings, ping_ns: int = 0
) -> "tuple[placement.Decision, tuple[str, ...]]":
    """The home for a publisher by the answers of a session, the home's answer first; brokers are numbered by the
    names."""
    import numpy as np

    from tidings.routing import overlay_of_links, shortest_path_tree  # compiled: takes long to load

    known: dict[str, wire.Answer] = {}
    for answer in answers:
        if not known or answer.parent in known:
            known.setdefault(answer.broker, answer)
    names = tuple(known)
    number = {name: place for place, name in enumerate(names)}
    links = [(number[answer.parent], number[answer.broker], 1.0) for answer in list(known.values())[1:]]
    overlay = overlay_of_links(names, links, both_ways=True)
    events = settings.relocation_events
    bits = np.zeros((len(names), placement.bit_words(events)), np.uint64)
    for place, answer in enumerate(known.values()):
        kept = int.from_bytes(answer.bits, "little") & ((1 << events) - 1)
        bits[place] = np.frombuffer(kept.to_bytes(bits.shape[1] * 8, "little"), "<u8")
    onward_ns = [
        known[names[source]].onward_ns.get(names[target], 0)
        for source, target in zip(overlay.source, overlay.target, strict=True)
    ]
    session = placement.TraceSession(
        overlay=overlay,
        tree=shortest_path_tree(overlay, 0),
        events=events,
        bits=bits,
        deliveries=np.array([answer.deliveries for answer in known.values()], np.int64),
        to_client_ns=np.array([answer.to_client_ns for answer in known.values()], np.int64),
        onward_ns=np.array(onward_ns, np.int64).reshape(len(links) * 2),
        ping_ns=np.full(len(names), ping_ns, np.int64),
    )
    decision = placement.select(
        placement.evaluate(session),
        metric=settings.relocation_metric,
        weight=settings.relocation_weight,
        hysteresis=settings.relocation_hysteresis,
    )
    return decision, names
