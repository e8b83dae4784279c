// The verdict, and what is wrong: who, since when, why, what to do.

import { byId, duration, element, many, reconcile, say } from "./words.js";

const TROUBLES_MAX = 20;
const NAMES_MAX = 6;

export function drawVerdict(verdict) {
  byId("verdict").className = verdict.state;
  say(byId("verdict"), verdict.line);
}

// `show` opens a subscription, `find` lists all subscriptions of a trouble.
export function drawTroubles({ troubles }, { show, find }) {
  byId("troubles-section").hidden = troubles.length === 0;
  const shown = troubles.slice(0, TROUBLES_MAX);
  reconcile(byId("troubles"), shown, (each) => each.kind + each.what, makeTrouble, (made, each) => update(made, each, show, find));
  say(byId("troubles-more"), troubles.length > TROUBLES_MAX ? `and ${troubles.length - TROUBLES_MAX} more` : "");
}

function makeTrouble(trouble) {
  const made = element("li", `trouble ${trouble.gravity}`);
  const heading = element("h3");
  heading.append(element("span", "gravity", trouble.gravity), document.createTextNode(trouble.what));
  const remedy = element("p", "remedy");
  remedy.append(element("span"), element("code"));
  made.append(heading, element("p", "since"), element("p", "why"), element("p", "who"), remedy);
  return made;
}

function update(made, trouble, show, find) {
  const affected = trouble.subscriptions.length + trouble.subscriptions_left_off;
  const facts = [trouble.since_s === null ? "" : `for ${duration(trouble.since_s)}`];
  facts.push(affected > 0 ? `${many(affected, "subscription")} affected` : "");
  facts.push(trouble.publishers.length > 0 ? `publishers: ${some(trouble.publishers)}` : "");
  say(made.querySelector(".since"), facts.filter(Boolean).join(" \u00b7 "));
  say(made.querySelector(".why"), `Why: ${trouble.why}`);
  say(made.querySelector(".remedy span"), `What to do: ${trouble.remedy}`);
  say(made.querySelector(".remedy code"), trouble.command);
  made.querySelector(".remedy code").hidden = trouble.command === "";
  const names = trouble.subscriptions.slice(0, NAMES_MAX).map((name) => ({ name, text: name, act: () => show(name) }));
  if (affected > names.length) names.push({ name: "\0all", text: `all ${affected}`, act: () => find(trouble.what) });
  reconcile(made.querySelector(".who"), names, (each) => each.name, () => element("button", "name"), (button, each) => {
    say(button, each.text);
    button.type = "button";
    button.onclick = each.act;
  });
}

function some(names) {
  const more = names.length - NAMES_MAX;
  return names.slice(0, NAMES_MAX).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
