// The tables. Rows are updated in place; of very many subscriptions some are shown, and the search looks at all.

import { conditionOf, leftOffBy, stateOf } from "./status.js";
import { byId, count, delay, droppedBy, element, many, percent, rate, reconcile, say, seconds, share, within } from "./words.js";

const ROWS_MAX = 200;
const MOVES_MAX = 20;

export function onTimeClass(value) {
  return value === null ? "unknown" : `on-time-${value >= 0.99 ? 2 : value >= 0.9 ? 1 : 0}`;
}

// A row has a key, cells, the place of its state (numbers follow), and perhaps an id, a tone for the first number, the
// width of its state, and what a click on its name does.
export function fill(table, rows) {
  const headings = [...byId(table).tHead.rows[0].cells].map((cell) => cell.textContent);
  reconcile(byId(table).tBodies[0], rows, (row) => row.key, () => element("tr"), (made, row) => updateRow(made, row, headings));
}

function updateRow(made, row, headings) {
  if (row.id !== undefined) made.id = row.id;
  while (made.cells.length > row.cells.length) made.lastElementChild.remove();
  while (made.cells.length < row.cells.length) made.append(makeCell(made.cells.length, headings));
  row.cells.forEach((text, number) => {
    const cell = made.cells[number];
    if (number === 0 && row.open !== undefined) sayButton(cell, text, row.open);
    else say(cell, text);
    const isNumber = number > row.states + (row.words ?? 0);
    const names = [isNumber ? "n" : "", number === row.states && /^(down|away)/.test(text) ? "down" : ""];
    if (row.tone !== undefined && number === row.states + (row.words ?? 0) + 1) names.push(row.tone);
    const className = names.filter(Boolean).join(" ");
    if (cell.className !== className) cell.className = className;
    const wide = row.wide && number === row.states ? row.wide : 1;
    if (cell.colSpan !== wide) cell.colSpan = wide;
  });
}

function makeCell(number, headings) {
  const cell = element(number === 0 ? "th" : "td");
  if (number === 0) cell.scope = "row";
  cell.dataset.label = headings[number];
  return cell;
}

function sayButton(cell, text, open) {
  let button = cell.firstElementChild;
  if (button === null) {
    button = element("button", "name");
    button.type = "button";
    cell.append(button);
  }
  say(button, text);
  button.onclick = open;
}

export function drawBrokers(brokers, links, subscriptions) {
  fill("brokers", brokers.map((broker) => brokerRow(broker, subscriptions)));
  fill(
    "links",
    links.map((link) => ({
      key: link.key,
      states: 1,
      cells: [
        link.ends.join(" \u2013 "),
        link.up ? "up" : "down",
        ...link.ends.map((end) => (end in link.queued ? count(link.queued[end]) : "-")),
        link.round_trip_s === null ? "-" : `${(link.round_trip_s * 1e3).toFixed(2)} ms`,
      ],
    })),
  );
}

function brokerRow(broker, subscriptions) {
  const row = { key: broker.name, id: `broker-${encodeURIComponent(broker.name)}`, states: 1 };
  if (!broker.up) {
    const affected = subscriptions.filter((each) => each.affected && each.broker === broker.name).length;
    const told = `down: ${broker.why}; ${many(affected + broker.subscribers_left_off, "subscription")} affected`;
    return { ...row, cells: [broker.name, told], wide: 9 };
  }
  return {
    ...row,
    cells: [
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
    ],
  };
}

const FILTERS = {
  all: () => true,
  trouble: (each) => each.trouble !== null,
  late: (each) => each.trouble !== null && each.trouble.gravity === "warning",
  away: (each) => !each.connected && !each.affected,
  down: (each) => each.affected,
};

export function drawSubscribers(brokers, subscriptions, show) {
  byId("subscribers-section").hidden = subscriptions.length === 0;
  const wanted = byId("search").value.trim().toLowerCase();
  const isWanted = FILTERS[byId("filter").value];
  const matches = (each) => [each.name, each.broker, each.trouble?.what ?? ""].some((text) => text.toLowerCase().includes(wanted));
  const found = subscriptions.filter((each) => isWanted(each) && matches(each));
  fill("subscribers", found.slice(0, ROWS_MAX).map((each) => subscriberRow(each, show)));
  const shown = Math.min(found.length, ROWS_MAX);
  say(byId("found"), `${count(shown)} of ${many(subscriptions.length, "subscription")}`);
  const leftOff = leftOffBy(brokers);
  say(byId("left-off"), leftOff > 0 ? `and ${count(leftOff)} more, none of which is known to do worse` : "");
}

function subscriberRow(each, show) {
  return {
    key: each.name,
    states: 2,
    words: 1,
    open: () => show(each.name),
    tone: onTimeClass(each.on_time_reliability),
    cells: [
      each.name,
      each.broker,
      conditionOf(each),
      each.trouble?.what ?? "-",
      share(each.on_time_reliability) + (each.period === "since start" ? within(each.interval) : ""),
      each.affected ? "-" : each.period,
      ...["matched", "on_time", "late"].map((outcome) => count(each[outcome])),
      droppedBy(each.dropped_by),
      ...["replaced", "lost", "under_way"].map((outcome) => count(each[outcome])),
      ...[each.delay_ms_p50, each.delay_ms_p99].map(delay),
    ],
  };
}

export function drawPublishers(brokers) {
  const rows = brokers.flatMap((broker) => (broker.publishers ?? []).map((each) => ({ ...each, broker: broker.name })));
  rows.sort((one, other) => other.rate_per_s - one.rate_per_s);
  byId("publishers-section").hidden = rows.length === 0;
  fill(
    "publishers",
    rows.slice(0, ROWS_MAX).map((each) => ({
      key: `${each.broker}/${each.client}`,
      states: 2,
      cells: [
        each.client,
        each.broker,
        each.connected ? "connected" : "away",
        rate(each.rate_per_s),
        count(each.published),
        count(each.subscriptions),
      ],
    })),
  );
  const more = brokers.reduce((sum, broker) => sum + (broker.publishers_left_off ?? 0), Math.max(rows.length - ROWS_MAX, 0));
  say(byId("publishers-more"), more > 0 ? `and ${count(more)} more` : "");
}

// Those under way, then the last that are over; nothing is shown where nobody has ever moved.
export function drawMoves(brokers) {
  const found = brokers.filter((broker) => broker.up).map((broker) => broker.moves);
  const total = (key) => found.reduce((sum, moves) => sum + moves[key], 0);
  const counts = { asked: total("asked"), done: total("done"), off: total("called_off"), moving: total("moving") };
  byId("moves-section").hidden = Object.values(counts).every((each) => each === 0);
  say(
    byId("moves-summary"),
    `${count(counts.moving)} under way; since the start ${count(counts.asked)} asked for, ` +
      `${count(counts.done)} done, ${count(counts.off)} called off`,
  );
  const underWay = found.flatMap((moves) => moves.under_way).map((each) => [each, `for ${seconds(each.phase_s)}`]);
  const over = found.flatMap((moves) => moves.recent).sort((one, other) => one.ago_s - other.ago_s);
  fill(
    "moves",
    [...underWay, ...over.slice(0, MOVES_MAX).map((each) => [each, `${seconds(each.ago_s)} ago`])].map(([each, since], number) => ({
      key: `${number}`,
      states: 3,
      cells: [each.client, each.from, each.to, each.why ? `${each.phase}: ${each.why}` : each.phase, each.by, since],
    })),
  );
}
