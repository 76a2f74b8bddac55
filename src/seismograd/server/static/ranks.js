// The ranks of a run side by side: one curve for each, and their newest values in a table.

import { get, Gone, runPath } from "./api.js";
import { Chart, plotly } from "./charts.js";
import { resolution } from "./curves.js";
import { adding, failed, h, put } from "./dom.js";
import { valued, whole } from "./format.js";
import { counts } from "./icons.js";
import { unitOf } from "./overview.js";
import { fromServer, latest, none } from "./points.js";
import { colourOf } from "./theme.js";

const FIRST = ["loss", "grad/norm", "time/step", "memory/rss"];
const EVERY = 2000;

export function mountRanks(panel, context) {
  const { id, span, server } = context;
  const { names } = context.run;
  const shown = FIRST.filter((name) => names.includes(name));
  if (!shown.includes("loss") && names.some((name) => name.startsWith("loss")))
    shown.unshift(names.find((name) => name.startsWith("loss")));
  let charts = [];
  let ranks = {};
  let timer = 0;
  let gone = false;
  let asking = null;
  const table = h("div", { class: "scroll" });
  const grid = h("div", { class: "charts two" });
  const notice = h("div", {});
  put(
    panel,
    notice,
    h("section", { class: "panel" }, h("header", { class: "panel-head" }, h("h3", {}, "Newest values")), table),
    grid,
  );

  function build() {
    for (const { chart } of charts) chart.dispose();
    charts = shown.map((name) => ({ name, chart: new Chart({ title: name, span, height: 190, unit: unitOf(name) }) }));
    const free = names.filter((name) => !shown.includes(name));
    put(
      grid,
      charts.map(({ chart }) => chart.element),
      adding(free, (name) => {
        shown.push(name);
        build();
      }),
    );
    ask();
  }

  async function ask() {
    clearTimeout(timer);
    timer = 0;
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      const query = { name: shown, ...span.query(), points: Math.min(500, resolution(grid)), rank: "all" };
      const answer = await get(runPath(id, "series"), query, signal);
      if (signal.aborted || gone) return;
      ranks = answer.ranks;
      put(notice);
      draw();
    } catch (error) {
      if (!signal.aborted && !gone && !(error instanceof Gone)) put(notice, failed(error, ask));
    }
  }

  function draw() {
    const order = Object.keys(ranks).sort((one, other) => Number(one) - Number(other));
    const of = (rank, name) => (ranks[rank][name] ? fromServer(ranks[rank][name]) : none());
    for (const { name, chart } of charts) {
      chart.show(
        order.map((rank, at) => ({
          name: `rank ${rank}`,
          points: of(rank, name),
          colour: colourOf(at),
          dash: at >= 9,
        })),
        marks(),
      );
    }
    const found = (rank) => {
      const own = context.findings.filter((finding) => String(finding.rank) === rank);
      return counts(
        Object.fromEntries(
          ["critical", "warning", "info"].map((each) => [each, own.filter(({ severity }) => severity === each).length]),
        ),
      );
    };
    put(
      table,
      h(
        "table",
        { class: "facts-table" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["rank", "step", ...shown, "findings"].map((title) => h("th", { scope: "col" }, title)),
          ),
        ),
        h(
          "tbody",
          {},
          order.map((rank) => {
            const all = shown.map((name) => of(rank, name));
            const step = Math.max(-1, ...all.map((points) => points.steps.at(-1) ?? -1));
            return h(
              "tr",
              {},
              h("th", { scope: "row" }, rank),
              h("td", {}, step < 0 ? "–" : whole(step)),
              all.map((points, at) =>
                h("td", {}, latest(points) === undefined ? "–" : valued(latest(points), unitOf(shown[at]))),
              ),
              h("td", {}, found(rank)),
            );
          }),
        ),
      ),
    );
  }

  function marks() {
    return context.findings.map(({ step, severity }) => ({ step, severity }));
  }

  plotly(server.plotly).then(
    () => !gone && build(),
    (error) => put(notice, failed(error)),
  );
  return {
    change: ask,
    reload: ask,
    found: draw,
    batch() {
      if (span.follows && !timer) timer = setTimeout(ask, EVERY);
    },
    leave() {
      gone = true;
      clearTimeout(timer);
      asking?.abort();
      for (const { chart } of charts) chart.dispose();
    },
  };
}
