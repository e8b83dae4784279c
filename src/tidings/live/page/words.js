// Figures as people read them, and the small tools that put them on the page.

// Made once: a formatter costs more than a thousand figures.
const WHOLE = new Intl.NumberFormat("en");
const THREE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);
export const isKnown = (value) => value !== null && value !== undefined;
export const count = (value) => (isKnown(value) ? WHOLE.format(value) : "-");
export const many = (value, what) => `${count(value)} ${what}${value === 1 ? "" : "s"}`;

// As `percent` of tidings.model.units: only exactly 0 or 1 is shown as 0 or 100.
export const share = (value) => {
  if (!isKnown(value)) return "-";
  const shown = (100 * value).toFixed(1);
  if (value < 1 && shown === "100.0") return ">99.9 %";
  if (value > 0 && shown === "0.0") return "<0.1 %";
  return `${shown} %`;
};
export const delay = (value) => (isKnown(value) ? `${THREE.format(value)} ms` : "-");
export const rate = (value) => (isKnown(value) ? THREE.format(value) : "-");
export const seconds = (value) => `${TENTHS.format(value)} s`;
export const percent = (value) => `${Math.round(value * 100)}%`;

export function duration(value) {
  for (const [size, unit] of [[86400, "days"], [3600, "h"], [60, "min"]]) {
    if (value >= 2 * size) return `${Math.round(value / size)} ${unit}`;
  }
  return `${Math.round(value)} s`;
}

// The interval that the share of the long run lies in, 95 times of 100; there is none in the first minutes.
export const within = (interval) => (interval === null ? "" : ` (${share(interval.low)} to ${share(interval.high)})`);

export function droppedBy(found) {
  if (found === null) return "-";
  return Object.entries(found).map(([by, dropped]) => `${count(dropped)} by ${by}`).join(", ") || "0";
}

export function shape(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className !== "") made.className = className;
  if (text !== "") made.textContent = text;
  return made;
}

// Changes only what differs: focus, selection and screen readers are left alone.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Makes the children of a node those of the items, in order; children of known keys are updated in place.
export function reconcile(parent, items, keyOf, make, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    known.delete(key);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = key;
    }
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const child of known.values()) child.remove();
}
