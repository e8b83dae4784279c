// The figures of the whole network, each with its last 15 minutes.

import { byId, count, delay, element, isKnown, rate, reconcile, say, shape, share } from "./words.js";

const SPAN_S = 900;
const GAP_S = 12; // a line does not cross a longer gap
const SIZE = { x: 180, y: 36 };

const TILES = [
  { key: "on_time_reliability", name: "on time, last minute", show: share, least: 0.9, most: 1 },
  { key: "published_per_s", name: "events in per second", show: rate },
  { key: "delivered_per_s", name: "deliveries per second", show: rate },
  { key: "delay_ms_p50", name: "median delay", show: delay },
  { key: "delay_ms_p99", name: "p99 delay, slowest broker", show: delay },
  { key: "queued", name: "events that wait", show: count },
];

export function drawTiles({ history, verdict, brokers }) {
  const queued = brokers.reduce((sum, broker) => sum + (broker.queued ?? 0), 0);
  const now = { on_time_reliability: verdict.on_time_reliability, queued };
  const items = TILES.map((tile) => ({ ...tile, times: history.at_s, values: history[tile.key], now: now[tile.key] }));
  reconcile(byId("tiles"), items, (tile) => tile.key, makeTile, updateTile);
}

function makeTile(tile) {
  const made = element("li", "tile");
  made.append(element("span", "label", tile.name), element("span", "value"));
  const line = shape("svg", { class: "spark", viewBox: `0 0 ${SIZE.x} ${SIZE.y}`, preserveAspectRatio: "none", role: "img" });
  line.append(shape("path"));
  made.append(line, element("span", "range"));
  return made;
}

function updateTile(made, tile) {
  const known = tile.values.filter(isKnown);
  const last = tile.now !== undefined ? tile.now : (known.length > 0 ? tile.values.at(-1) : null);
  const least = Math.min(tile.least ?? 0, ...known);
  const most = Math.max(tile.most ?? 0, ...known);
  say(made.querySelector(".value"), tile.show(last));
  const range = known.length > 0 ? `${tile.show(Math.min(...known))} to ${tile.show(Math.max(...known))}` : "no history yet";
  say(made.querySelector(".range"), range);
  const line = made.querySelector("svg");
  line.setAttribute("aria-label", `${tile.name} in the last 15 minutes: ${range}`);
  line.firstElementChild.setAttribute("d", pathOf(tile, least, most));
}

function pathOf({ times, values }, least, most) {
  const end = times.at(-1) ?? 0;
  let path = "";
  let before = -Infinity;
  values.forEach((value, number) => {
    const age = end - times[number];
    if (!isKnown(value) || age > SPAN_S) return;
    const x = SIZE.x * (1 - age / SPAN_S);
    const y = SIZE.y - 2 - (SIZE.y - 4) * (most > least ? (value - least) / (most - least) : 0);
    const starts = times[number] - before > GAP_S;
    path += starts ? `M${x.toFixed(1)} ${y.toFixed(1)}h0.1` : `L${x.toFixed(1)} ${y.toFixed(1)}`;
    before = times[number];
  });
  return path;
}
