// The overlay as a map: where brokers are, how they do, what waits between them.

import { onTime, stateOf } from "./status.js";
import { onTimeClass } from "./tables.js";
import { byId, count, delay, element, many, percent, shape, share } from "./words.js";

const DOTS_MAX = 16;
const SIZE = { x: 800, y: 560, margin: 90 };
const RADIUS = 30;

const level = (limits, value) => limits.filter((limit) => value >= limit).length;
const scale = (limits, show) => ({
  colour: (value) => (value === null ? "tone-none" : `load-${level(limits, value)}`),
  keys: [...limits.map((limit) => `under ${show(limit)}`), `${show(limits.at(-1))} or more`].map((text, number) => [`load-${number}`, text]),
});

// By what brokers are coloured: the value, its text, its colour, and the legend.
const MODES = {
  "on-time": {
    value: (broker) => onTime(broker.deliveries),
    show: (value) => (value === null ? "-" : share(value).replace(" ", "")),
    colour: (value) => (value === null ? "tone-none" : `tone-${value >= 0.99 ? 2 : value >= 0.9 ? 1 : 0}`),
    keys: [["tone-2", "99 % on time or more"], ["tone-1", "90 % or more"], ["tone-0", "less"], ["tone-none", "nothing known yet"]],
  },
  load: { value: (broker) => broker.utilisation, show: percent, ...scale([0.25, 0.5, 0.75, 0.9], (value) => `${percent(value)} busy`) },
  queue: { value: (broker) => broker.queued, show: count, ...scale([1, 10, 100, 1000], (value) => `${count(value)} queued`) },
  delay: {
    value: (broker) => broker.deliveries.last_minute.delay_ms_p99 ?? broker.deliveries.delay_ms_p99,
    show: (value) => (value === null ? "-" : delay(value).replace(" ms", "")),
    ...scale([5, 50, 500, 5000], (value) => `${count(value)} ms`),
  },
};

// Springs between neighbours: the same picture for the same network.

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

export function drawMap(brokers, links, subscriptions) {
  const map = byId("map");
  const mode = MODES[document.querySelector("#modes input:checked").value];
  const focused = document.activeElement?.closest?.("#map a")?.dataset.broker;
  const names = brokers.map((broker) => broker.name).sort();
  const at = place(names, links);
  const drawn = [];
  for (const link of links) drawn.push(...drawLink(link, at));
  for (const broker of brokers) {
    const own = subscriptions.filter((each) => each.broker === broker.name);
    drawn.push(drawBroker(broker, at.get(broker.name), own, mode));
  }
  map.replaceChildren(...drawn);
  if (focused !== undefined) [...map.querySelectorAll("a")].find((each) => each.dataset.broker === focused)?.focus();
  drawLegend(mode);
}

function drawLegend(mode) {
  const legend = byId("legend");
  if (legend.dataset.mode === mode.keys[0][1]) return;
  legend.dataset.mode = mode.keys[0][1];
  const dots = [["dot on-time-2", "subscription, 99 % on time or more"], ["dot on-time-1", "90 % or more"], ["dot on-time-0", "less"]];
  const rows = [...mode.keys, ["down", "down"], ...dots, ["dot unknown", "nothing known yet"]].map(([className, text]) => {
    const row = element("li");
    row.append(element("span", `key ${className}`), document.createTextNode(text));
    return row;
  });
  legend.replaceChildren(...rows, element("li", "", "the number on a line: events that wait for the link"));
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

function drawBroker(broker, { x, y }, subscriptions, mode) {
  const state = stateOf(broker);
  const link = shape("a", { href: `#broker-${encodeURIComponent(broker.name)}`, "data-broker": broker.name });
  const facts = broker.up
    ? `${percent(broker.utilisation)} busy, ${count(broker.queued)} queued, on time ${share(onTime(broker.deliveries))}`
    : broker.why;
  const value = broker.up ? mode.value(broker) : null;
  const colour = broker.up ? mode.colour(value) : "down";
  link.setAttribute("aria-label", `${broker.name}: ${state}, ${facts}`);
  link.append(shape("title", {}, `${broker.name}: ${state}, ${facts}`));
  link.append(
    shape("circle", { class: `broker ${colour}`, cx: x, cy: y, r: RADIUS }),
    shape("text", { class: "figure", x, y: y + 5 }, broker.up ? mode.show(value) : "down"),
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
