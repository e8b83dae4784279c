"""The event loop: what happens next, happens (docs/reference/simulation.md shows the life of a copy).

Theory of operation:

- Time jumps from one happening to the next: a publication of the chunk given, or the top of the heap. At equal times
  publications come first, then the order of entry. The loop comes back when the chunk is used up, when a pool or an
  output buffer has too little room for one more step, or after a number of steps; called again, it goes on exactly
  where it was, so how often it comes back changes nothing.
- A copy enters a link's queue, is chosen, is sent (size times a fresh draw of slowness), may be lost, is on the way
  (propagation), waits at the target for its turn (service), is delayed (processing), is delivered to the subscribers
  there and forwarded to the links behind which others lie.
- A stretch in which a copy keeps nobody waiting is one happening: after a transmission to a broker without a service
  law, propagation and processing are drawn together.

Doors: a component that fails, an order that is restored at the subscriber, a publisher that moves are each one more
kind of happening in the heap and one more branch of `advance`.
"""

from tidings.compiled import borrowing
from tidings.scheduling._kernels import HOPELESS_QUANTILE
from tidings.scheduling._layout import Pairs, Paths
from tidings.scheduling._strategies import FIFO, RL, TRIAGE
from tidings.simulation._choosing import append, choose_copy, deletion_ns, unlink
from tidings.simulation._heap import pop, push
from tidings.simulation._laws import draw, uniform, whole_ns
from tidings.simulation._layout import (
    ALIVE,
    ARENA_USED,
    ARRIVED,
    COPIES_USED,
    DELIVERIES_OUT,
    EVENTS_USED,
    HEAP_SIZE,
    HOPS_OUT,
    INPUT_USED,
    KIND_BITS,
    KINDS,
    LOST,
    MISSED,
    NEXT_PUBLICATION,
    NOBODY,
    NOW,
    OUTPUT_FULL,
    OVERLOADED,
    PAUSED,
    POOL_FULL,
    PROCESSED,
    RECEIVED,
    SERVED,
    STEPS,
    TRANSMITTED,
    WIDEST,
    Array,
)
from tidings.simulation._pools import Pools, end_copy, take_block
from tidings.simulation._routes import Routes
from tidings.simulation._steps import (
    AT_DOOR,
    READY,
    WAITING,
    begin_sending,
    begin_service,
    deliver,
    discard,
    mark,
    new_copy,
    publish,
    reach,
    report,
    set_link_figures,
    set_tree_figures,
)

__all__ = ["advance"]


@borrowing
def advance(
    pools: Pools,
    routes: Routes,
    links: Array,
    brokers: Array,
    subscriptions: Array,
    laws: Array,
    law_rows: Array,
    access_link: Array,
    publications: Array,
    matches: Array,
    hops: Array,
    deliveries: Array,
    horizon: int,
    steps: int,
    fan_out: int,
    copies_max: int,
    warmup: int,
    end: int,
    is_dropping: bool,
) -> int:
    """Let everything happen that happens before the horizon; says why it came back.

    A step makes at most `fan_out` copies beside the one that it is about.
    """
    # Each array is taken out of its tuple once: reading it there counts references.
    control, free_blocks, heap, copies, events = (
        pools.control,
        pools.free_blocks,
        pools.heap,
        pools.copies,
        pools.events,
    )
    subscription, origin, state, itself = pools.subscription, pools.origin, pools.state, pools.itself
    allowed_s, price, fixed_s, mean, sd = pools.allowed_s, pools.price, pools.fixed_s, pools.mean, pools.sd
    queue, room_to_decide, slots = pools.queue, pools.room, pools.slots
    pairs, paths = Pairs(itself, allowed_s), Paths(price, fixed_s, mean, sd)
    is_multi, tree_of, position, subtree_end = routes.is_multi, routes.tree_of, routes.position, routes.subtree_end
    first_child, child, child_link = routes.first_child, routes.child, routes.child_link
    route_fixed_s, route_mean, route_variance = routes.fixed_s, routes.mean, routes.variance
    out_offsets, out_links, reaches = routes.out_offsets, routes.out_links, routes.reaches
    trees = position.shape[0]
    entries_needed = 2 * control[WIDEST] * (fan_out + 1 if is_multi else 1)
    room = len(subscription) - entries_needed

    for _ in range(steps):
        # What happens next, and is there room for it?
        publication = control[NEXT_PUBLICATION]
        now = horizon
        is_publication = publication < len(publications)
        if is_publication:
            now = publications[publication].time
        kind, which = NOBODY, NOBODY
        if control[HEAP_SIZE] > 0 and heap[0].time < now:
            now = heap[0].time
            kind = heap[0].what & KINDS
            which = heap[0].what >> KIND_BITS
        if kind == NOBODY and not is_publication:
            return INPUT_USED
        if (
            control[COPIES_USED] + fan_out + 1 > len(copies)
            or control[HEAP_SIZE] + fan_out + 2 > len(heap)
            or control[EVENTS_USED] + 1 > len(events)
            or control[ARENA_USED] > room
        ):
            return POOL_FULL
        if control[ALIVE] > copies_max:
            return OVERLOADED
        if len(hops) > 0:
            rows = fan_out + 2
            if kind == TRANSMITTED:
                rows += links[which].length
            if control[HOPS_OUT] + rows > len(hops) or control[DELIVERIES_OUT] + control[WIDEST] > len(deliveries):
                return OUTPUT_FULL
        control[STEPS] += 1
        control[NOW] = now

        # A copy that gets to a broker in this step, one that is through with it, and one to be put in a queue.
        arriving, ready, queued = NOBODY, NOBODY, NOBODY
        if kind != NOBODY:
            pop(heap, control)
        if kind == NOBODY:
            control[NEXT_PUBLICATION] = publication + 1
            queued = publish(
                publication,
                publications,
                matches,
                warmup,
                is_multi,
                tree_of,
                position,
                reaches,
                access_link,
                copies,
                events,
                subscriptions,
                subscription,
                origin,
                state,
                allowed_s,
                price,
                free_blocks,
                control,
            )
        elif kind == TRANSMITTED:
            link = which
            copy = links[link].sending
            links[link].sending = NOBODY
            if is_dropping:
                waiting = links[link].head
                while waiting >= 0:
                    after = copies[waiting].next
                    if copies[waiting].delete_at <= now:
                        unlink(link, waiting, links, copies)
                        discard(
                            waiting,
                            now,
                            copies,
                            events,
                            subscription,
                            origin,
                            state,
                            allowed_s,
                            subscriptions,
                            hops,
                            free_blocks,
                            control,
                        )
                    elif links[link].strategy == FIFO:
                        break
                    waiting = after
            chosen = links[link].head
            if links[link].strategy != FIFO and links[link].length > 1:
                chosen = choose_copy(link, now, links, copies, events, queue, room_to_decide, slots, pairs, paths)
            if chosen >= 0:
                unlink(link, chosen, links, copies)
                begin_sending(link, chosen, now, warmup, end, links, copies, events, laws, law_rows, heap, control)
            if links[link].loss_chance > 0.0 and uniform(laws, links[link].loss) < links[link].loss_chance:
                mark(copy, MISSED, copies, origin, state)
                report(copy, LOST, NOBODY, copies, events, hops, control)
                end_copy(copy, copies, events, subscription, state, subscriptions, free_blocks, control)
            else:
                received = now + whole_ns(draw(laws, links[link].propagation, law_rows))
                place = reach(copy, now, received, links, brokers, copies, events, laws, law_rows, heap, control)
                if place == AT_DOOR:
                    arriving = copy
                elif place == READY:
                    ready = copy
        elif kind == ARRIVED:
            arriving = which
        elif kind == SERVED:
            broker = which
            copy = brokers[broker].serving
            brokers[broker].serving = NOBODY
            following = brokers[broker].head
            if following >= 0:
                brokers[broker].head = copies[following].next
                if copies[following].next < 0:
                    brokers[broker].tail = NOBODY
                begin_service(broker, following, now, warmup, end, brokers, copies, laws, law_rows, heap, control)
            delay = 0
            if brokers[broker].has_processing != 0:
                delay = whole_ns(draw(laws, brokers[broker].processing, law_rows))
            if delay > 0:
                push(heap, control, now + delay, copy << KIND_BITS | PROCESSED)
            else:
                ready = copy
        else:
            ready = which

        # The copies that this step puts into queues: that of a publication, or one for each link to forward to.
        source_copy = ready
        event = NOBODY
        broker = NOBODY
        entry, stop, slot, slot_end = 0, 0, 0, 0
        tree = 0
        if ready >= 0:
            event = copies[ready].event
            broker = links[copies[ready].link].target
            report(ready, RECEIVED, now, copies, events, hops, control)
            entry = copies[ready].start
            stop = copies[ready].stop
            if is_multi:
                # Each broker matches anew: whoever wants the event and can be reached from here, not only those for
                # whose sake it came.
                entry = events[event].start
                stop = events[event].stop
                for local in range(entry, stop):
                    if subscriptions[subscription[local]].home == broker:
                        deliver(
                            local, event, now, events, subscription, origin, state, subscriptions, deliveries, control
                        )
                slot = out_offsets[broker]
                slot_end = out_offsets[broker + 1]
            else:
                tree = tree_of[events[event].publisher]
                while entry < stop and subscriptions[subscription[entry]].home == broker:
                    deliver(entry, event, now, events, subscription, origin, state, subscriptions, deliveries, control)
                    entry += 1
                slot = first_child[tree, broker]
        while True:
            if ready >= 0:
                queued = NOBODY
                if is_multi:
                    while slot < slot_end and queued < 0:
                        link = out_links[slot]
                        slot += 1
                        count = 0
                        for other in range(entry, stop):
                            if reaches[link, subscriptions[subscription[other]].home]:
                                count += 1
                        if count > 0:
                            queued = new_copy(event, link, now, copies, events, control)
                            start, block = take_block(count, subscription, free_blocks, control)
                            copies[queued].block = block
                            copies[queued].start = start
                            copies[queued].stop = start + count
                            for other in range(entry, stop):
                                if reaches[link, subscriptions[subscription[other]].home]:
                                    subscription[start] = subscription[other]
                                    origin[start] = origin[other]
                                    allowed_s[start] = allowed_s[other]
                                    price[start] = price[other]
                                    start += 1
                elif entry < stop:
                    place = position[tree, subscriptions[subscription[entry]].home]
                    while subtree_end[tree, child[tree, slot]] <= place:
                        slot += 1
                    behind = subtree_end[tree, child[tree, slot]]
                    queued = new_copy(event, child_link[tree, slot], now, copies, events, control)
                    copies[queued].start = entry
                    if position[tree, subscriptions[subscription[stop - 1]].home] < behind:
                        entry = stop  # often one link leads to all that are left
                    while entry < stop and position[tree, subscriptions[subscription[entry]].home] < behind:
                        entry += 1
                    copies[queued].stop = entry
            if queued < 0:
                break
            copy = queued
            queued = NOBODY
            link = copies[copy].link
            served_from = copies[copy].start
            served_to = copies[copy].stop
            queue_event = copies[copy].event
            strategy = links[link].strategy
            if strategy != FIFO and strategy != RL:
                if is_multi:
                    set_link_figures(
                        served_from,
                        served_to,
                        link,
                        subscriptions,
                        subscription,
                        fixed_s,
                        mean,
                        sd,
                        route_fixed_s,
                        route_mean,
                        route_variance,
                    )
                else:
                    set_tree_figures(
                        served_from,
                        served_to,
                        tree_of[events[queue_event].publisher],
                        links[link].source,
                        trees + events[queue_event].publisher,
                        subscriptions,
                        subscription,
                        fixed_s,
                        mean,
                        sd,
                        route_fixed_s,
                        route_mean,
                        route_variance,
                    )
            # A publisher does not know who wants its events: a free access link takes all, any takes what nobody wants.
            is_timed = is_dropping or strategy == TRIAGE  # which also decides by how urgent a copy is
            if is_timed and served_from < served_to and (links[link].is_free == 0 or links[link].source >= 0):
                # A link with nothing else to do gives up on nothing that has a chance, however bold the strategy.
                quantile = links[link].quantile
                if links[link].sending < 0:
                    quantile = max(quantile, HOPELESS_QUANTILE)
                copies[copy].delete_at = deletion_ns(
                    strategy,
                    events[queue_event].published,
                    events[queue_event].size_kb,
                    served_from,
                    served_to,
                    itself,
                    allowed_s,
                    fixed_s,
                    mean,
                    sd,
                    quantile,
                )
            if links[link].is_free == 0 and links[link].sending >= 0:
                append(link, copy, links, copies)
            elif is_dropping and copies[copy].delete_at <= now:
                discard(
                    copy,
                    now,
                    copies,
                    events,
                    subscription,
                    origin,
                    state,
                    allowed_s,
                    subscriptions,
                    hops,
                    free_blocks,
                    control,
                )
            elif links[link].is_free == 0:
                begin_sending(link, copy, now, warmup, end, links, copies, events, laws, law_rows, heap, control)
            else:
                copies[copy].sent = now
                if links[link].loss_chance > 0.0 and uniform(laws, links[link].loss) < links[link].loss_chance:
                    mark(copy, MISSED, copies, origin, state)
                    report(copy, LOST, NOBODY, copies, events, hops, control)
                    end_copy(copy, copies, events, subscription, state, subscriptions, free_blocks, control)
                else:
                    received = now + whole_ns(draw(laws, links[link].propagation, law_rows))
                    place = reach(copy, now, received, links, brokers, copies, events, laws, law_rows, heap, control)
                    if place != WAITING:
                        push(heap, control, now, copy << KIND_BITS | (ARRIVED if place == AT_DOOR else PROCESSED))
            if ready < 0:
                break
        if source_copy >= 0:
            end_copy(source_copy, copies, events, subscription, state, subscriptions, free_blocks, control)
        if arriving >= 0:
            broker = links[copies[arriving].link].target
            if brokers[broker].serving < 0:
                begin_service(broker, arriving, now, warmup, end, brokers, copies, laws, law_rows, heap, control)
            else:
                copies[arriving].next = NOBODY
                if brokers[broker].tail >= 0:
                    copies[brokers[broker].tail].next = arriving
                else:
                    brokers[broker].head = arriving
                brokers[broker].tail = arriving
    return PAUSED
