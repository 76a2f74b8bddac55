// Elements. Strings from a run only ever become text nodes or attribute values: nothing here takes HTML.

import { spelled } from "./format.js";

/** An element: `h("a", {class: "x", href: "#", on: {click: go}}, "text", child)`. False and null are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "string" ? spelled(child) : child));
}

/** Puts other children into an element. */
export function put(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** Sets the text only where it is another one: a screen reader and the selection stay where they are. */
export function say(element, text) {
  const shown = spelled(text);
  if (element.textContent !== shown) element.textContent = shown;
  return element;
}

/** Tells those who do not see the page. */
export function announce(text) {
  say(document.getElementById("announce"), text);
}

/** A choice among strings or `{value, label}`; `value` is the chosen one. */
export function choice(label, options, value, pick) {
  const select = h("select", { "aria-label": label, on: { change: () => pick(select.value) } });
  select.append(
    ...options.map((option) => {
      const { value: key, label: shown } = typeof option === "string" ? { value: option, label: option } : option;
      return h("option", { value: key }, shown);
    }),
  );
  select.value = value;
  return select;
}

/** Offers the scalars that have no chart yet; nothing where there is none. */
export function adding(free, add) {
  const offers = [{ value: "", label: "Add a chart…" }, ...free];
  return free.length > 0 && h("div", { class: "add" }, choice("Add a chart", offers, "", (name) => name && add(name)));
}

/** Buttons of which one is pressed. */
export function segments(label, options, value, pick) {
  const group = h("div", { class: "segments", role: "group", "aria-label": label });
  const press = (chosen) => {
    for (const button of group.children) button.setAttribute("aria-pressed", String(button.dataset.value === chosen));
  };
  for (const { value: key, label: shown, title } of options) {
    group.append(h("button", { type: "button", "data-value": key, title, on: { click: () => pick(key) } }, shown));
  }
  press(value);
  group.press = press;
  return group;
}

/** What stands where there is nothing to see, with what to do about it. */
export function empty(title, ...advice) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title" }, title),
    ...advice.map((line) => h("p", {}, line)),
  );
}

/** An error, in the place where the answer would have stood. */
export function failed(error, retry) {
  return h(
    "div",
    { class: "failed", role: "alert" },
    h("p", { class: "empty-title" }, error.message),
    error.hint && h("p", {}, error.hint),
    retry && h("button", { type: "button", on: { click: retry } }, "Try again"),
  );
}
