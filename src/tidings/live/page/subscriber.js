// One subscription: what became of its events, and the paths that they take, with what waits on each hop.

import { conditionOf, pathOf } from "./status.js";
import { fill } from "./tables.js";
import { byId, count, delay, droppedBy, element, reconcile, say, share } from "./words.js";

let open = null; // the name of the subscription that is shown

export function showSubscriber(name, draw) {
  open = name;
  const dialog = byId("subscriber");
  dialog.onclose = () => { open = null; };
  if (!dialog.open) dialog.showModal();
  draw();
}

export function drawSubscriber({ brokers, trees }, subscriptions) {
  if (open === null) return;
  const found = subscriptions.find((each) => each.name === open);
  say(byId("subscriber-name"), open);
  if (found === undefined) {
    say(byId("subscriber-state"), "this subscription has ended");
    return;
  }
  const deadline = found.max_delay_s === null ? "no deadline of its own" : `deadline ${delay(found.max_delay_s * 1e3)}`;
  const queued = found.queued === null ? "" : `, ${count(found.queued)} waiting for it there`;
  say(byId("subscriber-state"), `client ${found.client} at ${found.broker}: ${conditionOf(found)}, ${deadline}${queued}`);
  const { trouble } = found;
  say(
    byId("subscriber-reason"),
    trouble === null ? "Nothing is wrong." : `${trouble.what}: ${trouble.why}. What to do: ${trouble.remedy}. ${trouble.command}`,
  );
  drawFigures(found.whole);
  drawPaths(brokers, trees, found);
}

function drawFigures(whole) {
  const recent = whole.last_minute;
  const rows = [
    ["on time", (each) => share(each.on_time_reliability)],
    ...["matched", "on_time", "late"].map((key) => [key === "on_time" ? "in time" : key, (each) => count(each[key])]),
    ["dropped", (each) => droppedBy(each.dropped_by)],
    ...["replaced", "lost", "out_of_order"].map((key) => [key.replaceAll("_", " "), (each) => count(each[key])]),
    ["median delay", (each) => delay(each.delay_ms_p50)],
    ["p99 delay", (each) => delay(each.delay_ms_p99)],
    ["p99 held for order", (each) => delay(each.hold_ms_p99)],
  ];
  fill(
    "subscriber-figures",
    rows.map(([name, show]) => ({ key: name, states: 0, cells: [name, recent === null ? "-" : show(recent), show(whole)] })),
  );
}

// A path for each broker with publishers; a bar is as long as the hop takes: half of the link's round trip.
function drawPaths(brokers, trees, found) {
  const byName = new Map(brokers.map((broker) => [broker.name, broker]));
  const paths = Object.entries(trees)
    .map(([root, tree]) => pathOf(tree, root, found.broker))
    .filter((path) => path !== null);
  const box = byId("subscriber-paths");
  const longest = Math.max(1e-9, ...paths.flatMap((path) => hopsOf(byName, path).map((hop) => hop.ms ?? 0)));
  reconcile(box, paths, (path) => path[0], () => element("div", "path"), (made, path) => {
    const hops = hopsOf(byName, path);
    const last = { name: `${found.broker} \u2192 ${found.client}`, waiting: found.queued, ms: null };
    reconcile(made, [{ title: `from ${path[0]}` }, ...hops, last], (each) => each.title ?? each.name, makeHop, (row, each) => {
      if (each.title !== undefined) return say(row, each.title);
      say(row.children[0], each.name);
      say(row.children[1], `${count(each.waiting)} waiting`);
      say(row.children[2], delay(each.ms));
      row.children[3].style.width = `${(30 * (each.ms ?? 0)) / longest}%`;
    });
  });
  if (paths.length === 0) box.replaceChildren(element("p", "faint", "No publisher is known yet."));
}

function makeHop(each) {
  if (each.title !== undefined) return element("h4");
  const made = element("div", "hop");
  made.append(element("span", "hop-name"), element("span"), element("span"), element("span", "bar"));
  return made;
}

function hopsOf(byName, path) {
  return path.slice(1).map((to, number) => {
    const peer = byName.get(path[number])?.neighbours?.[to];
    const ms = peer?.rtt_s === undefined || peer.rtt_s === null ? null : peer.rtt_s * 500;
    return { name: `${path[number]} \u2192 ${to}`, waiting: peer?.queued ?? null, ms };
  });
}
