// Findings beside the curves: what is wrong, and what it looks like.

import { Chart, plotly } from "./charts.js";
import { Curves, resolution } from "./curves.js";
import { card, keyOf, steps, stories } from "./findings.js";
import { adding, choice, failed, h, put, say } from "./dom.js";
import { many } from "./format.js";
import { colourOf } from "./theme.js";

const CHARTS = [
  { title: "Loss", has: (name) => /^(loss|val_loss)(\/\d+)?$/.test(name), height: 230 },
  { title: "Gradient norm", has: (name) => /^grad\/norm(\/\d+)?$/.test(name), height: 150 },
  { title: "Learning rate", has: (name) => /^lr\/\d+$/.test(name), height: 110, zero: true },
];
const MOST_CURVES = 6; // in one chart; others can be chosen
const UNITS = [
  ["time/", "seconds"],
  ["memory/", "bytes"],
];

export function unitOf(name) {
  return UNITS.find(([prefix]) => name.startsWith(prefix))?.[1] ?? null;
}

/** Loss first, then validation; groups by number. */
function ordered(names) {
  return [...names].sort(
    (one, other) =>
      one.startsWith("val") - other.startsWith("val") || one.localeCompare(other, "en", { numeric: true }),
  );
}

export function mountOverview(panel, context) {
  const { id, span, query, setQuery, server } = context;
  const list = h("div", { class: "finding-list" });
  const heading = h("h2", {}, "Findings");
  const aside = h("section", { class: "findings", "aria-label": "Findings" }, heading, list);
  const grid = h("div", { class: "charts" }, h("p", { class: "muted" }, "Loading the charts…"));
  const layout = h("div", { class: "overview" }, aside, h("div", { class: "chart-column" }, grid));
  const chosen = (query.show ?? "").split(",").filter(Boolean).map(decodeURIComponent);
  let charts = [];
  let cards = new Map(); // by the key of the finding
  let known = "";
  let gone = false;
  put(panel, layout);

  const curves = new Curves({
    id,
    span,
    rank: context.rank,
    points: () => resolution(grid),
    changed: draw,
    failed: (error) => put(grid, failed(error, build)),
  });

  /** The charts that the names of this run ask for. */
  function build() {
    if (gone || !window.Plotly) return;
    const { names } = context.run;
    known = names.join("\n");
    for (const { chart } of charts) chart.dispose();
    charts = [];
    for (const { title, has, height, zero } of CHARTS) {
      const own = ordered(names.filter(has)).slice(0, MOST_CURVES);
      if (own.length) charts.push({ chart: new Chart({ title, span, height, zero }), names: own });
    }
    const rest = names.filter((name) => !charts.some((each) => each.names.includes(name)));
    for (const name of chosen.filter((each) => names.includes(each))) charts.push(chosenChart(name, rest));
    const free = rest.filter((name) => !chosen.includes(name));
    put(
      grid,
      charts.map(({ chart }) => chart.element),
      chosen.length < 8 && adding(free, (name) => choose([...chosen, name])),
    );
    if (!charts.length) put(grid, h("p", { class: "muted" }, "No value has been read yet."));
    const wanted = [...new Set(charts.flatMap((each) => each.names))];
    context.watch(wanted);
    curves.ask(wanted);
  }

  function chosenChart(name, rest) {
    const others = rest.filter((each) => each === name || !chosen.includes(each));
    const head = h(
      "span",
      { class: "chosen" },
      choice("Scalar of this chart", others, name, (next) =>
        choose(chosen.map((each) => (each === name ? next : each))),
      ),
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          "aria-label": "Remove this chart",
          title: "Remove this chart",
          on: { click: () => choose(chosen.filter((each) => each !== name)) },
        },
        "×",
      ),
    );
    return { chart: new Chart({ title: name, span, height: 150, unit: unitOf(name), head }), names: [name] };
  }

  function choose(next) {
    chosen.splice(0, chosen.length, ...next);
    query.show = chosen.map(encodeURIComponent).join(",");
    setQuery({ show: query.show || null });
    build();
  }

  function draw(names) {
    if (gone) return;
    const marks = context.findings.map(({ step, severity }) => ({ step, severity }));
    for (const each of charts) {
      if (!each.names.some((name) => names.includes(name))) continue;
      const shown = each.names.map((name, at) => ({ name, points: curves.of(name), colour: colourOf(at) }));
      each.chart.show(shown, marks);
    }
  }

  function drawFindings() {
    const trees = stories(context.findings);
    layout.classList.toggle("is-clear", !trees.length);
    aside.hidden = !trees.length;
    say(heading, many(context.findings.length, "finding"));
    const next = new Map();
    for (const story of trees) {
      const key = keyOf(story.finding);
      const text = JSON.stringify(story, (name, value) =>
        name === "count" || name === "last_step" ? undefined : value,
      );
      const before = cards.get(key);
      const made = before?.text === text ? before : { text, element: newCard(story, key, before?.element) };
      say(made.element.querySelector(".when"), steps(story.finding));
      next.set(key, made);
    }
    cards = next;
    const order = [...next.values()].map(({ element }) => element);
    if (order.length !== list.children.length || order.some((element, at) => list.children[at] !== element))
      put(list, order);
  }

  /** A card; what was unfolded in its forerunner stays so. */
  function newCard(story, key, before) {
    const element = card(story, { ranks: context.run.ranks.length, show, fresh: context.newest?.has(key) });
    const open = new Set(
      [...(before?.querySelectorAll("details[open] > summary") ?? [])].map((summary) => summary.textContent),
    );
    for (const details of element.querySelectorAll("details")) details.open = open.has(details.firstChild.textContent);
    return element;
  }

  /** Zooms to a finding: some steps before it and after. */
  function show(finding) {
    const room = Math.max(20, Math.min(200, (finding.last_step - finding.step) * 2));
    span.set(finding.step - room, Math.min(finding.last_step, finding.step + room) + room / 2);
    grid.querySelector(".plot")?.focus({ preventScroll: true });
    grid.scrollIntoView({ block: "nearest" });
  }

  drawFindings();
  plotly(server.plotly).then(
    () => !gone && build(),
    (error) =>
      put(
        grid,
        failed(error, () => mountOverview(panel, context)),
      ),
  );

  return {
    change: () => curves.ask(),
    reload() {
      drawFindings();
      if (context.run.names.join("\n") === known) curves.ask();
      else build();
    },
    found() {
      drawFindings();
      if (context.run.names.join("\n") === known) draw(curves.names);
      else build();
    },
    batch(data) {
      curves.append(data.series);
      for (const { chart } of charts) chart.redraw();
    },
    leave() {
      gone = true;
      curves.stop();
      for (const { chart } of charts) chart.dispose();
    },
  };
}
