// The operator's page: what `tidings status --json` prints, pushed once a second, drawn.

import { drawMap } from "./map.js";
import { linksOf, subscriptionsOf } from "./status.js";
import { drawSubscriber, showSubscriber } from "./subscriber.js";
import { drawBrokers, drawMoves, drawPublishers, drawSubscribers } from "./tables.js";
import { drawTiles } from "./tiles.js";
import { drawTroubles, drawVerdict } from "./troubles.js";
import { byId, say } from "./words.js";

const EVERY_MS = 1000;
const STALE_MS = 5000;

let status = null; // the last one
let source = null; // of pushed ones; null while they are asked for
let heardAt = Date.now();

function draw() {
  if (status === null) return;
  const { brokers, verdict } = status;
  const links = linksOf(brokers);
  const subscriptions = subscriptionsOf(status.subscribers, verdict.troubles);
  const show = (name) => showSubscriber(name, draw);
  drawVerdict(verdict);
  drawTiles(status);
  drawTroubles(verdict, { show, find });
  drawMap(brokers, links, subscriptions);
  drawBrokers(brokers, links, subscriptions);
  drawSubscribers(brokers, subscriptions, show);
  drawPublishers(brokers);
  drawMoves(brokers);
  drawSubscriber(status, subscriptions);
  drawEmpty(brokers, subscriptions);
}

// What to do first, where nobody does anything yet.
function drawEmpty(brokers, subscriptions) {
  const isEmpty = subscriptions.length === 0 && brokers.every((broker) => (broker.publishers ?? []).length === 0);
  byId("empty").hidden = !isEmpty;
  const address = brokers.find((broker) => broker.address)?.address ?? "HOST:PORT";
  say(byId("empty-subscribe"), `tidings subscribe ${address} "price > 10"`);
  say(byId("empty-publish"), `echo '{"symbol": "YHOO", "price": 17.2}' | tidings publish ${address}`);
}

function find(text) {
  byId("search").value = text;
  byId("filter").value = "all";
  draw();
  byId("subscribers-heading").scrollIntoView({ block: "start" });
  byId("search").focus();
}

function take(text) {
  status = JSON.parse(text);
  heardAt = Date.now();
  draw();
  say(byId("updated"), `updated ${new Date(heardAt).toLocaleTimeString("en-GB")}`);
  document.body.dataset.at = String(heardAt);
}

function fail(why) {
  byId("verdict").className = "down";
  say(byId("verdict"), `this page's broker does not answer (${why}): what follows is old`);
}

// Pushed by the broker. It may have too many readers, or be of an earlier version: then it is asked.
function listen() {
  if (source !== null) return;
  source = new EventSource("events");
  source.onmessage = (event) => take(event.data);
  source.onerror = () => {
    if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    source = null;
    poll();
  };
}

async function poll() {
  if (source !== null || document.hidden) return;
  try {
    const answer = await fetch("status.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    take(await answer.text());
  } catch (error) {
    fail(error.message);
  }
  setTimeout(poll, EVERY_MS);
}

// A page that nobody sees asks for nothing.
function look() {
  if (!document.hidden) return listen();
  source?.close();
  source = null;
}

setInterval(() => {
  const silentMs = Date.now() - heardAt;
  if (!document.hidden && silentMs > STALE_MS) fail(`silent for ${Math.round(silentMs / 1000)} s`);
}, EVERY_MS);
document.addEventListener("visibilitychange", look);
byId("find").addEventListener("submit", (event) => event.preventDefault());
for (const input of [byId("search"), byId("filter"), byId("modes")]) input.addEventListener("input", draw);
look();
