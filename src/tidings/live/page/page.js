// What `tidings status --json` says, once a second, as a map and as tables.
"use strict";

const EVERY_MS = 1000;
const DOTS_MAX = 16;
const MOVES_MAX = 20;
const SIZE = { x: 800, y: 560, margin: 90 };
const RADIUS = 30;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);
const count = (value) => (value === null ? "-" : value.toLocaleString("en"));
const many = (value, what) => `${count(value)} ${what}${value === 1 ? "" : "s"}`;
const share = (value) => (value === null ? "-" : `${Math.floor(Math.round(value * 1e6) / 1e3) / 10} %`); // 100 %: all of it
const delay = (value) => (value === null ? "-" : `${value.toLocaleString("en", { maximumSignificantDigits: 3 })} ms`);
const seconds = (value) => `${value.toLocaleString("en", { maximumFractionDigits: 1 })} s`;
const percent = (value) => `${Math.round(value * 100)}%`;

function shape(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

// -- what the status says ---------------------------------------------------------------------------------------------

function stateOf(broker) {
  if (!broker.up) return "down";
  return broker.draining ? "draining" : broker.ready ? "up" : "starting";
}

// Both ends tell of a link, and of who is down it is known whom it should hear; a link is up if both hear each other.
function linksOf(brokers) {
  const up = new Map(brokers.map((broker) => [broker.name, broker.up]));
  const found = new Map();
  const note = (from, to, peer) => {
    const ends = [from, to].sort();
    const key = JSON.stringify(ends);
    if (!found.has(key)) found.set(key, { ends, heard: [], queued: {}, round_trip_s: null });
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

// They come worst first. What is shown is of the last minute, or, if nothing was settled in it, since the start. An
// account may be younger: it begins anew where a client comes to.
function subscriptionsOf(subscribers) {
  return Object.entries(subscribers).map(([name, each]) => {
    const isRecent = each.last_minute !== null && each.last_minute.on_time_reliability !== null;
    const figures = isRecent ? each.last_minute : each;
    const recently = each.since_s < 60 ? `last ${Math.ceil(each.since_s)} s` : "last minute";
    return { ...each, ...figures, name, under_way: each.under_way, period: isRecent ? recently : "since start" };
  });
}

function conditionOf(subscription) {
  if (subscription.affected) return "down: its broker";
  return subscription.connected ? "connected" : "away";
}

// Of the last minute, or, if nothing was settled in it, since the start.
function onTime(account) {
  return account.last_minute.on_time_reliability ?? account.on_time_reliability;
}

function loadClass(utilisation) {
  return `load-${[0.25, 0.5, 0.75, 0.9].filter((limit) => utilisation >= limit).length}`;
}

function onTimeClass(value) {
  return value === null ? "unknown" : `on-time-${value >= 0.99 ? 2 : value >= 0.9 ? 1 : 0}`;
}

// -- where brokers are on the map: springs between neighbours, the same picture for the same network ------------------

let places = { key: "", at: new Map() };

function place(names, links) {
  const key = JSON.stringify([names, links.map((link) => link.ends)]);
  if (key === places.key) return places.at;
  const at = new Map(
    names.map((name, number) => {
      const angle = (2 * Math.PI * number) / names.length - Math.PI / 2;
      return [name, { x: Math.cos(angle), y: Math.sin(angle) }];
    }),
  );
  const ideal = 1.6 / Math.sqrt(names.length);
  for (let step = 0; step < 300; step += 1) {
    const push = new Map(names.map((name) => [name, { x: 0, y: 0 }]));
    const apply = (one, other, strength) => {
      const [a, b] = [at.get(one), at.get(other)];
      const [dx, dy] = [a.x - b.x, a.y - b.y];
      const distance = Math.max(Math.hypot(dx, dy), 0.01);
      const force = strength(distance) / distance;
      push.get(one).x += dx * force;
      push.get(one).y += dy * force;
      push.get(other).x -= dx * force;
      push.get(other).y -= dy * force;
    };
    names.forEach((one, number) => {
      for (const other of names.slice(number + 1)) apply(one, other, (distance) => (ideal * ideal) / distance);
    });
    for (const { ends } of links) {
      if (at.has(ends[0]) && at.has(ends[1])) apply(...ends, (distance) => -(distance * distance) / ideal);
    }
    const most = 0.1 * (1 - step / 300);
    for (const name of names) {
      const move = push.get(name);
      const length = Math.max(Math.hypot(move.x, move.y), 1e-9);
      at.get(name).x += (move.x / length) * Math.min(length, most);
      at.get(name).y += (move.y / length) * Math.min(length, most);
    }
  }
  places = { key, at: fit(names, at) };
  return places.at;
}

function fit(names, at) {
  const range = (axis) => {
    const values = names.map((name) => at.get(name)[axis]);
    return [Math.min(...values), Math.max(...values)];
  };
  const spans = { x: range("x"), y: range("y") };
  const scaled = (value, axis) => {
    const [least, most] = spans[axis];
    if (most - least < 0.05) return SIZE[axis] / 2;
    return SIZE.margin + ((value - least) / (most - least)) * (SIZE[axis] - 2 * SIZE.margin);
  };
  return new Map(names.map((name) => [name, { x: scaled(at.get(name).x, "x"), y: scaled(at.get(name).y, "y") }]));
}

// -- drawing ----------------------------------------------------------------------------------------------------------

function drawMap(brokers, links, subscriptions) {
  const map = byId("map");
  const focused = document.activeElement?.closest?.("#map a")?.dataset.broker;
  const names = brokers.map((broker) => broker.name).sort();
  const at = place(names, links);
  const drawn = [];
  for (const link of links) drawn.push(...drawLink(link, at));
  for (const broker of brokers) {
    drawn.push(drawBroker(broker, at.get(broker.name), subscriptions.filter((each) => each.broker === broker.name)));
  }
  map.replaceChildren(...drawn);
  if (focused !== undefined) [...map.querySelectorAll("a")].find((each) => each.dataset.broker === focused)?.focus();
}

function drawLink(link, at) {
  const [a, b] = link.ends.map((end) => at.get(end));
  if (a === undefined || b === undefined) return [];
  const waiting = Object.values(link.queued).reduce((sum, each) => sum + each, 0);
  const kind = !link.up ? "down" : waiting > 0 ? "busy" : "up";
  const line = shape("line", { class: `edge ${kind}`, x1: a.x, y1: a.y, x2: b.x, y2: b.y });
  line.style.strokeWidth = String(2 + Math.min(Math.log10(1 + waiting), 5));
  const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 + 5, class: "small halo" };
  return [line, shape("text", middle, link.up ? count(waiting) : "down")];
}

function drawBroker(broker, { x, y }, subscriptions) {
  const state = stateOf(broker);
  const link = shape("a", { href: `#broker-${encodeURIComponent(broker.name)}`, "data-broker": broker.name });
  const facts = broker.up
    ? `${percent(broker.utilisation)} busy, ${count(broker.queued)} queued, on time ${share(onTime(broker.deliveries))}`
    : broker.why;
  link.setAttribute("aria-label", `${broker.name}: ${state}, ${facts}`);
  link.append(shape("title", {}, `${broker.name}: ${state}, ${facts}`));
  link.append(
    shape("circle", { class: `broker ${broker.up ? loadClass(broker.utilisation) : "down"}`, cx: x, cy: y, r: RADIUS }),
    shape("text", { class: "busy", x, y: y + 5 }, broker.up ? percent(broker.utilisation) : "down"),
    shape("text", { class: "halo", x, y: y + RADIUS + 32 }, broker.name),
  );
  if (broker.up) link.append(shape("text", { class: "small halo", x, y: y + RADIUS + 49 }, `${count(broker.queued)} queued`));
  subscriptions.slice(0, DOTS_MAX).forEach((subscription, number) => {
    const angle = (2 * Math.PI * number) / DOTS_MAX - Math.PI / 2;
    const [cx, cy] = [x + (RADIUS + 10) * Math.cos(angle), y + (RADIUS + 10) * Math.sin(angle)];
    const dot = shape("circle", { class: onTimeClass(subscription.on_time_reliability), cx, cy, r: 5 });
    const told = subscription.affected ? "its broker is down" : `on time ${share(subscription.on_time_reliability)}`;
    dot.append(shape("title", {}, `${subscription.name}: ${told}`));
    link.append(dot);
  });
  if (subscriptions.length > DOTS_MAX) {
    link.append(shape("text", { class: "small halo", x, y: y - RADIUS - 22 }, many(subscriptions.length, "subscription")));
  }
  return link;
}

function fill(table, rows) {
  const body = byId(table).tBodies[0];
  body.replaceChildren(
    ...rows.map(({ id, cells, states, wide, tone }) => {
      const row = document.createElement("tr");
      if (id !== undefined) row.id = id;
      cells.forEach((text, number) => {
        const cell = document.createElement(number === 0 ? "th" : "td");
        if (number === 0) cell.scope = "row";
        cell.textContent = text;
        if (number > states) cell.className = "n";
        if (number === states && /^(down|away)/.test(text)) cell.className = "down";
        if (tone !== undefined && number === states + 1) cell.classList.add(tone);
        if (wide && number === states) cell.colSpan = wide;
        row.append(cell);
      });
      return row;
    }),
  );
}

function drawTables(brokers, links, subscriptions) {
  fill(
    "brokers",
    brokers.map((broker) => ({
      id: `broker-${encodeURIComponent(broker.name)}`,
      states: 1,
      cells: broker.up
        ? [
            broker.name,
            stateOf(broker),
            percent(broker.utilisation),
            `${count(broker.clients_connected)} of ${count(broker.clients)}`,
            count(broker.queued),
            count(broker.stored),
            share(broker.deliveries.last_minute.on_time_reliability),
            share(broker.deliveries.on_time_reliability) + within(broker.deliveries.interval),
            count(broker.transfers),
            count(broker.dropped),
          ]
        : [broker.name, `down: ${broker.why}`],
      wide: broker.up ? 0 : 9,
    })),
  );
  fill(
    "links",
    links.map((link) => ({
      states: 1,
      cells: [
        link.ends.join(" \u2013 "),
        link.up ? "up" : "down",
        ...link.ends.map((end) => (end in link.queued ? count(link.queued[end]) : "-")),
        link.round_trip_s === null ? "-" : `${(link.round_trip_s * 1e3).toFixed(2)} ms`,
      ],
    })),
  );
  fill(
    "subscribers",
    subscriptions.map((each) => ({
      states: 2,
      tone: onTimeClass(each.on_time_reliability),
      cells: [
        each.name,
        each.broker,
        conditionOf(each),
        share(each.on_time_reliability) + (each.period === "since start" ? within(each.interval) : ""),
        each.affected ? "-" : each.period,
        ...["matched", "on_time", "late"].map((outcome) => count(each[outcome])),
        droppedBy(each.dropped_by),
        ...["lost", "under_way"].map((outcome) => count(each[outcome])),
        ...[each.delay_ms_p50, each.delay_ms_p99].map(delay),
      ],
    })),
  );
  const leftOff = leftOffBy(brokers);
  byId("left-off").textContent = leftOff > 0 ? `and ${count(leftOff)} more, none of which is known to do worse` : "";
}

// Those under way, then the last that are over; nothing is shown where nobody has ever moved.
function drawMoves(brokers) {
  const found = brokers.filter((broker) => broker.up).map((broker) => broker.moves);
  const total = (key) => found.reduce((sum, moves) => sum + moves[key], 0);
  const counts = { asked: total("asked"), done: total("done"), off: total("called_off"), moving: total("moving") };
  byId("moves-section").hidden = Object.values(counts).every((each) => each === 0);
  byId("moves-summary").textContent =
    `${count(counts.moving)} under way; since the start ${count(counts.asked)} asked for, ` +
    `${count(counts.done)} done, ${count(counts.off)} called off`;
  const underWay = found.flatMap((moves) => moves.under_way).map((each) => [each, `for ${seconds(each.phase_s)}`]);
  const over = found.flatMap((moves) => moves.recent).sort((one, other) => one.ago_s - other.ago_s);
  fill(
    "moves",
    [...underWay, ...over.slice(0, MOVES_MAX).map((each) => [each, `${seconds(each.ago_s)} ago`])].map(([each, since]) => ({
      states: 3,
      cells: [each.client, each.from, each.to, each.why ? `${each.phase}: ${each.why}` : each.phase, each.by, since],
    })),
  );
}

// The interval that the share of the long run lies in, 95 times of 100; there is none in the first minutes.
function within(interval) {
  return interval === null ? "" : ` (${share(interval.low)} to ${share(interval.high)})`;
}

function droppedBy(found) {
  if (found === null) return "-";
  return Object.entries(found).map(([by, dropped]) => `${count(dropped)} by ${by}`).join(", ") || "0";
}

function leftOffBy(brokers) {
  return brokers.reduce((sum, broker) => sum + broker.subscribers_left_off, 0);
}

// -- live -------------------------------------------------------------------------------------------------------------

let before = new Map();

function announce(brokers) {
  const changed = brokers
    .filter((broker) => before.has(broker.name) && before.get(broker.name) !== stateOf(broker))
    .map((broker) => `${broker.name} is ${stateOf(broker)}`);
  if (changed.length > 0) byId("said").textContent = changed.join(", ");
  before = new Map(brokers.map((broker) => [broker.name, stateOf(broker)]));
}

function summarise(brokers, links, subscriptions) {
  const down = brokers.filter((broker) => !broker.up).map((broker) => broker.name);
  const summary = byId("summary");
  summary.className = down.length > 0 ? "bad" : "";
  const who = down.length > 0 ? `down: ${down.join(", ")}` : `OK: ${many(brokers.length, "broker")}, ${many(links.length, "link")}`;
  const affected = subscriptions.filter((each) => each.affected).length;
  const where = affected > 0 ? `, ${count(affected)} affected` : "";
  summary.textContent = `${who}; ${many(subscriptions.length + leftOffBy(brokers), "subscription")}${where}`;
}

async function poll() {
  try {
    const answer = await fetch("status.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    const { brokers, subscribers } = await answer.json();
    const links = linksOf(brokers);
    const subscriptions = subscriptionsOf(subscribers);
    drawMap(brokers, links, subscriptions);
    drawTables(brokers, links, subscriptions);
    drawMoves(brokers);
    announce(brokers);
    summarise(brokers, links, subscriptions);
    document.body.dataset.at = String(Date.now());
  } catch (error) {
    byId("summary").className = "bad";
    byId("summary").textContent = `this page's broker does not answer (${error.message}): what follows is old`;
  }
  setTimeout(poll, EVERY_MS);
}

poll();
