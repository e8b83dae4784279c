"use strict";
// Without this script the page lacks only the waterfall; it adds sorting, selecting and narrowing. Data is only ever
// inserted as text.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const FEW = 12; // rows of a table before "show all"
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const make = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const time = (seconds) => {
    if (seconds === 0) return "0";
    const rounded = Number(seconds.toPrecision(3)); // first, or 999.9 µs would be 1000 of them
    for (const [unit, size] of [["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["µs", 1e-6]])
      if (rounded >= size) return `${Number((rounded / size).toPrecision(3))} ${unit}`;
    return "<1 µs";
  };

  // Tables: a click on a heading sorts; they are short until all rows are wanted, and narrowed to the choice on the map.
  const tables = all("table.sortable").map((table) => {
    const body = table.tBodies[0];
    const known = { table, body, isOpen: false };
    const button = make("button", { type: "button", class: "more" });
    button.addEventListener("click", () => {
      known.isOpen = !known.isOpen;
      shorten(known);
    });
    table.parentElement.after(button);
    known.button = button;
    all(".sort", table).forEach((heading) => heading.addEventListener("click", () => sort(known, heading)));
    shorten(known);
    return known;
  });

  function shorten({ body, button, isOpen }) {
    const shown = [...body.rows].filter((row) => !row.classList.contains("is-out"));
    shown.forEach((row, place) => row.classList.toggle("is-more", !isOpen && place >= FEW));
    button.hidden = shown.length <= FEW;
    button.textContent = isOpen ? `Show the first ${FEW} only` : `Show all ${shown.length} rows`;
    button.dataset.printed = isOpen ? "" : `The first ${FEW} of ${shown.length} rows.`;
    button.setAttribute("aria-expanded", String(isOpen));
  }

  function sort(known, heading) {
    const head = heading.closest("th");
    const column = head.cellIndex;
    const isNumber = head.classList.contains("figure");
    const before = head.getAttribute("aria-sort");
    const order = before === "none" ? (isNumber ? "descending" : "ascending") : before === "ascending" ? "descending" : "ascending";
    all("th", head.parentElement).forEach((each) => each.setAttribute("aria-sort", each === head ? order : "none"));
    const sign = order === "ascending" ? 1 : -1;
    const key = (row) => row.cells[column].dataset.key;
    const rows = [...known.body.rows].sort((a, b) => {
      const [one, other] = [key(a), key(b)];
      if (one === "" || other === "") return (one === "") - (other === ""); // unknown values come last in both orders
      return sign * (isNumber ? Number(one) - Number(other) : one.localeCompare(other, undefined, { numeric: true }));
    });
    known.body.append(...rows);
    shorten(known);
  }

  // The map: the figures of the station under the pointer or the focus; one tab stop, which the arrow keys move.
  const stations = all("#map .station");
  const details = document.getElementById("details");
  let chosenStation = null;

  function factsOf(number) {
    const station = figures.stations[number];
    const facts = [["busy", percent(station.busy)]];
    if (station.kind === "link" && station.onTime !== null) facts.unshift(["on time over it", percent(station.onTime)]);
    if (station.rate) facts.push(["events", `${Number(station.rate.toPrecision(3))}/s`]);
    facts.push(["waiting", time(station.waiting)]);
    if (station.kind === "broker") {
      const [subscriptions, publishers, matched, onTime] = figures.places[number];
      facts.push(["matching", time(station.service)], ["subscriptions", subscriptions.toLocaleString("en")]);
      if (matched) facts.unshift(["on time here", percent(onTime / matched)]);
      if (publishers) facts.push(["publishers", String(publishers)]);
    } else {
      facts.push(["propagation", time(station.propagation)], ["lost", percent(station.loss)]);
    }
    if (station.up < 0.9995) facts.push(["down", percent(1 - station.up)]);
    return facts;
  }

  function describe(number) {
    if (!details || number === null) return;
    const list = make("dl");
    for (const [name, value] of factsOf(number)) list.append(make("dt", {}, name), make("dd", {}, value));
    details.replaceChildren(make("h3", {}, figures.stations[number].name), list);
  }

  const middle = (element) => {
    const box = element.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const directions = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

  function nearest(from, direction) {
    const [x, y] = middle(from);
    let best = null;
    for (const each of stations) {
      const [dx, dy] = [middle(each)[0] - x, middle(each)[1] - y];
      const along = dx * direction[0] + dy * direction[1];
      const aside = Math.abs(dx * direction[1]) + Math.abs(dy * direction[0]);
      if (each !== from && along > 1 && aside <= along * 1.5) {
        const far = along + 2 * aside;
        if (!best || far < best.far) best = { each, far };
      }
    }
    return best && best.each;
  }

  stations.forEach((station) => {
    const number = Number(station.dataset.station);
    station.addEventListener("pointerenter", () => describe(number));
    station.addEventListener("pointerleave", () => describe(chosenStation));
    station.addEventListener("focus", () => describe(number));
    station.addEventListener("click", () => narrow(chosenStation === number ? null : number));
    station.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        narrow(chosenStation === number ? null : number);
      } else if (event.key === "Escape") {
        narrow(null);
      } else if (directions[event.key]) {
        event.preventDefault();
        const next = nearest(station, directions[event.key]);
        if (!next) return;
        station.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
      }
    });
  });

  const notice = document.getElementById("narrowed");
  notice.querySelector("button").addEventListener("click", () => narrow(null));

  // A broker: its subscriptions and its links. A link: the subscriptions that receive over it.
  function concerns(row, number) {
    const station = figures.stations[number];
    const isBroker = station.kind === "broker";
    const { broker, link, name } = row.dataset;
    if (link !== undefined) return isBroker ? figures.stations[Number(link)].ends.includes(number) : Number(link) === number;
    if (name !== undefined) {
      if (isBroker && broker !== undefined) return Number(broker) === number;
      return (figures.journeys[name] || []).some((each) => isBroker ? each.stations.at(-1) === number : each.stations.includes(number));
    }
    if (broker !== undefined) return isBroker ? Number(broker) === number : station.ends.includes(Number(broker));
    return true;
  }

  function narrow(number) {
    chosenStation = number;
    stations.forEach((each) => each.setAttribute("aria-pressed", String(Number(each.dataset.station) === number)));
    for (const known of tables) {
      for (const row of known.body.rows) row.classList.toggle("is-out", number !== null && !concerns(row, number));
      shorten(known);
    }
    all(".point[data-name]").forEach((point) => point.classList.toggle("is-out", number !== null && !concerns(point, number)));
    notice.hidden = number === null;
    if (number !== null) notice.querySelector("span").textContent = `Tables show ${figures.stations[number].name} only.`;
    describe(number);
  }

  // The waterfall of a subscription and a publisher.
  const subscription = document.getElementById("subscription");
  const publisher = document.getElementById("publisher");
  const journeyPlace = document.getElementById("journey");
  const KINDS = ["waiting", "service", "transmission", "propagation"];
  const HEADINGS = ["waiting", "matching", "transmission", "propagation"];

  function partsOf(journey) {
    return journey.stations.map((number) => {
      const station = figures.stations[number];
      return { station, waiting: station.waiting, service: station.service, transmission: journey.size * station.slowness, propagation: station.propagation };
    });
  }

  function lane(part, start, longest, allowed) {
    const bars = make("div", { class: "lane" });
    let at = start;
    for (const kind of KINDS) {
      if (part[kind] > 0) {
        const bar = make("span", { class: kind, title: `${kind} ${time(part[kind])}` });
        bar.style.insetInlineStart = `${(100 * at) / longest}%`;
        bar.style.inlineSize = `${(100 * part[kind]) / longest}%`;
        bars.append(bar);
      }
      at += part[kind];
    }
    if (allowed !== null && allowed <= longest) {
      const over = make("span", { class: "over" });
      over.style.insetInlineStart = `${(100 * allowed) / longest}%`;
      over.style.insetInlineEnd = "0";
      bars.prepend(over);
      const limit = make("span", { class: "limit", title: `deadline ${time(allowed)}` });
      limit.style.insetInlineStart = `${(100 * allowed) / longest}%`;
      bars.append(limit);
    }
    return make("td", { class: "track", "aria-hidden": "true" }, bars);
  }

  const sum = (part) => KINDS.reduce((total, kind) => total + part[kind], 0);

  function drawJourney() {
    const journey = (figures.journeys[subscription.value] || [])[publisher.selectedIndex];
    if (!journey) return;
    const parts = partsOf(journey);
    const total = parts.reduce((so, part) => so + sum(part), 0);
    const near = journey.allowed !== null && journey.allowed <= 2 * total ? journey.allowed : 0;
    const longest = Math.max(total, near) * 1.03 || 1;
    const body = make("tbody");
    let at = 0;
    for (const part of parts) {
      const row = make("tr", {}, make("th", { scope: "row" }, part.station.name), make("td", { class: "figure wide" }, percent(part.station.busy)),
        lane(part, at, longest, journey.allowed));
      for (const kind of KINDS) row.append(make("td", { class: "figure wide" }, part[kind] ? time(part[kind]) : "–"));
      row.append(make("td", { class: "figure" }, time(sum(part))));
      body.append(row);
      at += sum(part);
    }
    const sums = KINDS.map((kind) => parts.reduce((so, part) => so + part[kind], 0));
    const foot = make("tfoot", {}, make("tr", {}, make("th", { scope: "row" }, "the whole path"), make("td", { class: "wide" }), make("td", { "aria-hidden": "true" }),
      ...sums.map((value) => make("td", { class: "figure wide" }, time(value))), make("td", { class: "figure" }, time(total))));
    const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "station"), make("th", { scope: "col", class: "figure wide" }, "busy"), make("td", { "aria-hidden": "true" }),
      ...HEADINGS.map((name) => make("th", { scope: "col", class: "figure wide" }, name)), make("th", { scope: "col", class: "figure" }, "total")));
    const caption = make("caption", {}, `From ${journey.publisher} to ${subscription.value}`);
    const sentences = [`${percent(journey.share)} of its events are from ${journey.publisher}; ${percent(journey.arrived)} of them arrived, ${journey.share < 1 ? "about " : ""}${percent(journey.onTime)} on time.`];
    if (journey.mean !== null) sentences.push(`Those that arrived took ${time(journey.mean)} on average; the stations add up to ${time(total)}.`);
    sentences.push(journey.allowed === null ? "No deadline." : `The deadline is ${time(journey.allowed)}.`);
    const wants = make("p", { class: "quiet" }, "Its filter is ", make("code", {}, figures.wants[subscription.value]), ". ", sentences.join(" "));
    journeyPlace.replaceChildren(make("div", { class: "frame" }, make("table", { class: "journey" }, caption, head, body, foot)), wants);
  }

  function choose(name) {
    if (subscription && figures.journeys[name]) {
      subscription.value = name;
      publisher.replaceChildren(...figures.journeys[name].map((each) => make("option", {}, each.publisher)));
      drawJourney();
    }
    const curve = document.getElementById("chosen-curve");
    if (curve) {
      const [path, first] = figures.curves[name] || ["", ""];
      curve.setAttribute("d", path);
      document.getElementById("chosen-name").textContent = path ? `Selected: ${name}, ${first} without holding.` : "";
    }
    all("tr[data-name], .point[data-name]").forEach((each) => each.classList.toggle("is-chosen", each.dataset.name === name));
  }

  all(".pick, .point[data-name]").forEach((each) => each.addEventListener("click", () => {
    choose(each.dataset.name);
    const place = document.getElementById("waterfall");
    if (place && each.classList.contains("pick") && figures.journeys[each.dataset.name]) place.scrollIntoView();
  }));
  if (subscription) {
    subscription.addEventListener("change", () => choose(subscription.value));
    publisher.addEventListener("change", drawJourney);
    if (subscription.options.length) choose(subscription.options[0].value);
  }
})();
