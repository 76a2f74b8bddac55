// Where a step's time goes, and the memory.

import { Chart, plotly } from "./charts.js";
import { Curves, resolution } from "./curves.js";
import { empty, failed, h, put } from "./dom.js";
import { bytes, percent, seconds } from "./format.js";
import { latest } from "./points.js";
import { colourOf } from "./theme.js";

/** The parts that a step's time falls into, in their order. */
const PHASES = ["data", "forward", "backward", "optimizer", "rest", "watch", "evaluation", "checkpoint", "logging", "collective"].map(
  (phase) => `time/${phase}`,
);
const EVERY = 2000;

export function mountResources(panel, context) {
  const { id, span, server } = context;
  const { names } = context.run;
  const charts = [];
  const phases = PHASES.filter((name) => names.includes(name));
  const memory = names.filter((name) => name.startsWith("memory/"));
  const others = names.filter((name) => name.startsWith("time/") && !PHASES.includes(name));
  if (!phases.length && !memory.length && !others.length) {
    put(panel, empty("No time or memory has been read yet."));
    return { found: lookAgain, reload: lookAgain };
  }

  /** A phase may come later than the others. */
  function lookAgain() {
    const known = (each) => each.filter((name) => /^(time|memory)\//.test(name)).join("\n");
    if (known(context.run.names) !== known(names)) context.remount();
    else if (charts.length) draw();
  }
  let gone = false;
  let timer = 0;
  const add = (title, own, options) =>
    own.length && charts.push({ chart: new Chart({ title, span, ...options }), names: own });
  add("Time of a step by phase", phases, { height: 240, unit: "seconds", stacked: true });
  add("Memory", memory, { height: 220, unit: "bytes", zero: true });
  add("Other times", others, { height: 180, unit: "seconds" });
  const shares = h("div", { class: "shares" });
  const grid = h(
    "div",
    { class: "charts" },
    charts.map(({ chart }) => chart.element),
  );
  const wanted = charts.flatMap((each) => each.names);
  put(
    panel,
    phases.length > 0 &&
      h(
        "section",
        { class: "panel" },
        h("header", { class: "panel-head" }, h("h3", {}, "Mean of the steps read in view")),
        shares,
      ),
    grid,
  );

  const curves = new Curves({
    id,
    span,
    rank: context.rank,
    points: () => resolution(grid),
    changed: draw,
    failed: (error) =>
      put(
        shares,
        failed(error, () => curves.ask(wanted)),
      ),
  });

  function draw() {
    if (gone) return;
    const marks = context.findings.map(({ step, severity }) => ({ step, severity }));
    for (const { chart, names: own } of charts) {
      chart.show(
        own.map((name, at) => ({
          name: name.slice(name.indexOf("/") + 1),
          points: curves.of(name),
          colour: colourOf(placeOf(name, at)),
        })),
        marks,
      );
    }
    drawShares();
  }

  /** The mean step as one bar, a part for each phase. */
  function drawShares() {
    const means = phases
      .map((name) => ({ name: name.slice(5), value: mean(curves.of(name)) }))
      .filter(({ value }) => value > 0);
    const all = means.reduce((sum, { value }) => sum + value, 0);
    const newest = memory.includes("memory/rss") ? latest(curves.of("memory/rss")) : undefined;
    const bar = h(
      "div",
      { class: "share-bar", "aria-hidden": "true" },
      means.map(({ name, value }) => {
        const part = h("span", { title: `${name} ${percent(value / all)}` });
        part.style.flexGrow = String(value / all);
        part.style.background = colourOf(PHASES.indexOf(`time/${name}`));
        return part;
      }),
    );
    put(
      shares,
      bar,
      h(
        "dl",
        { class: "facts" },
        h("div", {}, h("dt", {}, "step"), h("dd", {}, seconds(all))),
        means.map(({ name, value }) => {
          const key = h("i", { class: "key" });
          key.style.color = colourOf(PHASES.indexOf(`time/${name}`));
          return h("div", {}, h("dt", {}, key, name), h("dd", {}, `${seconds(value)} · ${percent(value / all)}`));
        }),
        newest !== undefined && h("div", {}, h("dt", {}, "memory now"), h("dd", {}, bytes(newest))),
      ),
    );
  }

  plotly(server.plotly).then(
    () => !gone && curves.ask(wanted),
    (error) => put(shares, failed(error)),
  );
  return {
    change: () => curves.ask(),
    reload: () => curves.ask(),
    found: lookAgain,
    batch() {
      if (!span.follows || timer) return;
      timer = setTimeout(() => {
        timer = 0;
        curves.ask();
      }, EVERY);
    },
    leave() {
      gone = true;
      clearTimeout(timer);
      curves.stop();
      for (const { chart } of charts) chart.dispose();
    },
  };
}

/** A phase has its colour in every run. */
function placeOf(name, at) {
  return PHASES.includes(name) ? PHASES.indexOf(name) : at;
}

/** The mean over all values, not over points. */
function mean(points) {
  let sum = 0;
  let count = 0;
  points.mean.forEach((value, at) => {
    if (!Number.isFinite(value)) return;
    const many = points.count[at] - points.bad[at];
    sum += value * many;
    count += many;
  });
  return count ? sum / count : NaN;
}
