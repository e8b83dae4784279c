// What follows from the status: the state of brokers and links, and each subscription with its trouble.

export const GRAVITIES = ["critical", "warning", "notice"];

export function stateOf(broker) {
  if (!broker.up) return "down";
  return broker.draining ? "draining" : broker.ready ? "up" : "starting";
}

// Both ends report a link, and the file names those of a broker that is down; a link is up if both hear each other.
export function linksOf(brokers) {
  const up = new Map(brokers.map((broker) => [broker.name, broker.up]));
  const found = new Map();
  const note = (from, to, peer) => {
    const ends = [from, to].sort();
    const key = JSON.stringify(ends);
    if (!found.has(key)) found.set(key, { key, ends, heard: [], queued: {}, round_trip_s: null });
    const link = found.get(key);
    link.heard.push(peer !== null && peer.up);
    if (peer !== null) link.queued[from] = peer.queued;
    if (peer !== null && peer.up && peer.rtt_s !== null) {
      link.round_trip_s = Math.max(link.round_trip_s ?? 0, peer.rtt_s);
    }
  };
  for (const broker of brokers) {
    for (const [other, peer] of Object.entries(broker.neighbours ?? {})) note(broker.name, other, peer);
    for (const other of broker.absent) note(broker.name, other, null);
  }
  for (const link of found.values()) link.up = link.heard.every(Boolean) && link.ends.every((end) => up.get(end));
  return [...found.values()].sort((one, other) => (one.ends.join() < other.ends.join() ? -1 : 1));
}

// By subscription: the gravest trouble that it is in.
function troublesOf(troubles) {
  const found = new Map();
  for (const trouble of troubles) {
    for (const name of trouble.subscriptions) if (!found.has(name)) found.set(name, trouble);
  }
  return found;
}

// Those in trouble first, then the worst. What is shown is of the last minute, or, if nothing was settled in it, since
// the start. An account may be younger: it begins anew where a client comes to.
export function subscriptionsOf(subscribers, troubles) {
  const troubleOf = troublesOf(troubles);
  const found = Object.entries(subscribers).map(([name, each]) => {
    const isRecent = each.last_minute !== null && each.last_minute.on_time_reliability !== null;
    const figures = isRecent ? each.last_minute : each;
    const recently = each.since_s < 60 ? `last ${Math.ceil(each.since_s)} s` : "last minute";
    const trouble = troubleOf.get(name) ?? null;
    return {
      ...each,
      ...figures,
      name,
      whole: each,
      trouble,
      gravity: trouble === null ? GRAVITIES.length : GRAVITIES.indexOf(trouble.gravity),
      under_way: each.under_way,
      period: isRecent ? recently : "since start",
    };
  });
  return found.sort((one, other) => one.gravity - other.gravity); // stable: otherwise as the broker ranked them
}

export function conditionOf(subscription) {
  if (subscription.affected) return "down: its broker";
  return subscription.connected ? "connected" : "away";
}

// Of the last minute, or, if nothing was settled in it, since the start.
export function onTime(account) {
  return account.last_minute.on_time_reliability ?? account.on_time_reliability;
}

export function leftOffBy(brokers) {
  return brokers.reduce((sum, broker) => sum + broker.subscribers_left_off, 0);
}

// The brokers from a publisher's home to another, by the tree of its events; null if there is no path.
export function pathOf(tree, root, target) {
  const path = [target];
  while (path[0] !== root) {
    const parent = tree[path[0]];
    if (parent === undefined || path.length > Object.keys(tree).length) return null;
    path.unshift(parent);
  }
  return path;
}
