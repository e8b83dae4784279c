"""What a status sums up is known without looking at every client: it is what looking at all of them gives."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.door import SECOND, Door

from tidings.protocol import Budget, wire

NAMES = ("c0", "c1", "c2", "c3")
ACTS = ("come", "subscribe", "unsubscribe", "publish", "acknowledge", "lose", "wait", "congest", "free")


class Played:
    """A broker with clients that come, go, lag and take what they are given."""

    def __init__(self) -> None:
        self.door = Door(Budget(queued_bytes=2_000))
        self.door.come("p")
        self.door.say("p", [wire.encode(wire.Advertise(self.door.machine.epoch, 0, "all", "TRUE"))])
        self.there: set[str] = set()
        self.number = 1

    def act(self, what: str, name: str) -> None:
        door, machine, self.number = self.door, self.door.machine, self.number + 1
        if what == "come" and name not in self.there:
            door.come(name)
            self.there.add(name)
        elif what == "publish":
            content = wire.encode_content(wire.Content({"n": self.number}, b"", bytes(300)))
            event = wire.Publication(self.number, door.now_ns, 0, 3 * SECOND, 300, content)
            door.say("p", [wire.encode(wire.Publish(1, self.number, 0, (event,)))])
        elif what == "wait":
            door.wait(0.5)
        elif name in self.there:
            if what == "subscribe":
                entry = wire.Entry("s", "n >= 0", None, 1.0, 0)
                door.say(name, [wire.encode(wire.Subscribe(machine.epoch, self.number, entry))])
            elif what == "unsubscribe":
                door.say(name, [wire.encode(wire.Unsubscribe(machine.epoch, self.number, "s"))])
            elif what == "acknowledge":
                last = max(machine.clients[name].outbox.window.next_number - 1, 0)
                door.say(name, [wire.encode(wire.Ack(machine.epoch, ((0, last),), 0, 256))])
            elif what == "lose":
                door.carry(door.node.lost(name, "cut", door.now_ns))
                self.there.discard(name)
            elif what in ("congest", "free"):
                door.carry(door.node.congested(name, door.now_ns, is_congested=what == "congest"))
                door.carry(door.node.turn(door.now_ns))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from(NAMES)), max_size=60))
def test_what_is_summed_up_is_what_looking_at_all_clients_gives(acts: list[tuple[str, str]]) -> None:
    played = Played()
    for name in NAMES:
        played.act("come", name)
        played.act("subscribe", name)
    machine = played.door.machine
    for what, name in acts:
        played.act(what, name)
        laden = {peer.name for peer in machine.laden_clients()}
        assert laden == {peer.name for peer in machine.clients.values() if not peer.outbox.is_empty}
        assert machine.clients_up == {peer.name for peer in machine.clients.values() if peer.is_up}
        assert len(machine.gossip.local) == sum(len(machine.gossip.local.of(client)) for client in machine.clients)


def test_who_has_very_many_subscriptions_is_known_until_it_has_fewer() -> None:
    door = Door(Budget())
    door.come("c")
    local = door.machine.gossip.local
    for n in range(150):
        local.put("c", wire.Entry(f"n{n}", "x = 1", None, 1.0, 0))
        assert ("c" in local.large) == (n + 1 >= 100)
    for n in range(150):
        local.drop("c", f"n{n}")
        assert ("c" in local.large) == (149 - n >= 100)
