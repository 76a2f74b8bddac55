// Signs that differ in shape, not in colour alone.

import { h, svg } from "./dom.js";

const SHAPES = {
  critical: ["path", { d: "M8 1.2 14.8 8 8 14.8 1.2 8Z" }],
  crashed: [
    "path",
    { d: "M3.6 2.2 8 6.6l4.4-4.4 1.4 1.4L9.4 8l4.4 4.4-1.4 1.4L8 9.4l-4.4 4.4-1.4-1.4L6.6 8 2.2 3.6Z" },
  ],
  warning: ["path", { d: "M8 1.6 15 14H1Z" }],
  info: ["circle", { cx: 8, cy: 8, r: 5.6 }],
  healthy: ["path", { d: "m6.3 12.9-4.6-4.6 1.5-1.5 3.1 3.1 6.5-6.5 1.5 1.5Z" }],
};

/** The sign of a status or a severity; words stand beside it. */
export function sign(kind) {
  const [tag, shape] = SHAPES[kind] ?? SHAPES.info;
  return svg(
    "svg",
    { class: `sign is-${kind}`, viewBox: "0 0 16 16", width: 12, height: 12, "aria-hidden": "true" },
    svg(tag, shape),
  );
}

/** A status as a word with its sign. */
export function statusChip(status) {
  return h("span", { class: `chip is-${status}` }, sign(status), status);
}

const STATES = { live: "live", ended: "ended", lost: "lost" };

/** Whether it runs: a dot that beats, the word beside it. */
export function stateDot(state) {
  const title = state === "lost" ? "It neither ended nor writes any more: it was probably killed." : null;
  return h("span", { class: `state is-${state}`, title }, h("i", { "aria-hidden": "true" }), STATES[state] ?? state);
}

/** A small curve of the loss: gaps where it is not finite, a cross at the end if it ends so. */
export function spark(values, width = 120, height = 24) {
  const numbers = values.map((value) => (typeof value === "number" ? value : NaN));
  const finite = numbers.filter(Number.isFinite);
  const drawing = svg("svg", {
    class: "spark",
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    "aria-hidden": "true",
  });
  if (!finite.length) {
    if (numbers.length) drawing.append(cross(5, height / 2));
    return drawing;
  }
  const low = Math.min(...finite);
  const high = Math.max(...finite);
  const x = (at) => 2 + (at / Math.max(1, numbers.length - 1)) * (width - 8);
  const y = (value) => (high > low ? 3 + (1 - (value - low) / (high - low)) * (height - 6) : height / 2);
  let path = "";
  let open = false;
  let end = null;
  numbers.forEach((value, at) => {
    if (Number.isFinite(value)) {
      path += `${open ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      end = [x(at), y(value)];
    }
    open = Number.isFinite(value);
  });
  drawing.append(svg("path", { d: path, class: "spark-line" }));
  if (finite.length === 1) drawing.append(svg("circle", { cx: end[0], cy: end[1], r: 2, class: "spark-dot" }));
  const last = numbers[numbers.length - 1];
  if (!Number.isFinite(last) && end) {
    drawing.append(cross(Math.min(end[0] + 4, width - 4), end[1]));
  }
  return drawing;
}

function cross(x, y) {
  return svg("path", { d: `M${x - 3} ${y - 3}l6 6m0-6l-6 6`, class: "spark-bad" });
}

/** How many findings there are of each severity; nothing where there are none. */
export function counts(findings) {
  const shown = ["critical", "warning", "info"].filter((severity) => findings?.[severity] > 0);
  const words = shown.map((severity) => `${findings[severity]} ${severity}`).join(", ");
  if (!shown.length) return h("span", { class: "counts is-none" }, "none");
  return h(
    "span",
    { class: "counts", "aria-label": words, title: words },
    shown.map((severity) =>
      h("span", { class: `count is-${severity}`, "aria-hidden": "true" }, sign(severity), String(findings[severity])),
    ),
  );
}
