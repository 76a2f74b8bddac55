// Two runs over each other, and where they part.

import { get, Gone, runPath } from "./api.js";
import { Chart, plotly } from "./charts.js";
import { Curves, resolution } from "./curves.js";
import { adding, choice, empty, failed, h, put } from "./dom.js";
import { ago, moment, number, percent, plain, whole } from "./format.js";
import { unitOf } from "./overview.js";
import { colourOf } from "./theme.js";

const FIRST = [/^loss(\/\d+)?$/, /^val_loss(\/\d+)?$/, /^grad\/norm(\/\d+)?$/, /^lr\/\d+$/];
const MOST = 6; // charts at first
const EVERY = 2000;

export function mountCompare(panel, context) {
  const { id, span, query, setQuery, server } = context;
  let other = null;
  let charts = [];
  let curves = [];
  let step = null;
  let timer = 0;
  let gone = false;
  let asking = null;
  const chosen = [];
  const chooser = h("div", { class: "bar" });
  const said = h("div", {});
  const grid = h("div", { class: "charts two" });
  put(panel, chooser, said, grid);

  async function list() {
    try {
      const { runs } = await get("/api/runs", { limit: 200, offset: 0 }, context.signal);
      if (gone) return;
      const others = runs.filter((run) => run.id !== id);
      if (!others.length) {
        put(chooser);
        put(said, empty("There is no other run to compare with."));
        return;
      }
      const options = others.map((run) => ({
        value: run.id,
        label: `${run.name || run.id} · ${run.status} · ${whole(run.steps)} steps · ${ago(moment(run.started))}`,
      }));
      if (query.with && !others.some((run) => run.id === query.with))
        options.unshift({ value: query.with, label: query.with });
      put(
        chooser,
        h("span", { class: "muted" }, "Compare with"),
        choice("Second run", [{ value: "", label: "choose a second run…" }, ...options], query.with ?? "", pick),
      );
      if (query.with) start(query.with);
      else
        put(
          said,
          empty(
            "Choose a second run.",
            "Its curves are drawn over this one's, and the first step is named at which the two part.",
          ),
        );
    } catch (error) {
      if (!gone && !(error instanceof Gone)) put(said, failed(error, list));
    }
  }

  function pick(next) {
    query.with = next || null;
    setQuery({ with: query.with });
    if (next) start(next);
    else {
      clear();
      put(said);
    }
  }

  function clear() {
    asking?.abort();
    for (const { chart } of charts) chart.dispose();
    for (const each of curves) each.stop();
    charts = [];
    curves = [];
    step = null;
    put(grid);
  }

  async function start(next) {
    clear();
    asking = new AbortController();
    const { signal } = asking;
    put(said, h("p", { class: "muted" }, "Comparing…"));
    try {
      await plotly(server.plotly);
      other = await get(runPath(next), {}, signal);
      if (signal.aborted || gone) return;
      span.grow(other.steps - 1);
      build();
      const answer = await get(runPath(id, "compare", next), {}, signal);
      if (signal.aborted || gone) return;
      step = answer.parted?.step ?? null;
      tell(answer);
      draw();
    } catch (error) {
      if (!signal.aborted && !gone && !(error instanceof Gone))
        put(
          said,
          failed(error, () => start(next)),
        );
    }
  }

  function build() {
    const both = context.run.names.filter((name) => other.names.includes(name));
    const first = FIRST.flatMap((pattern) => both.filter((name) => pattern.test(name))).slice(0, MOST);
    const wanted = [...first, ...chosen.filter((name) => both.includes(name))];
    for (const { chart } of charts) chart.dispose();
    charts = wanted.map((name) => ({ name, chart: new Chart({ title: name, span, height: 190, unit: unitOf(name) }) }));
    const free = both.filter((name) => !wanted.includes(name));
    put(
      grid,
      charts.map(({ chart }) => chart.element),
      adding(free, (name) => {
        chosen.push(name);
        build();
      }),
    );
    curves.forEach((each) => each.stop());
    const points = () => Math.min(600, resolution(grid));
    curves = [context.run, other].map(
      (run) =>
        new Curves({
          id: run.id,
          span,
          rank: run.ranks[0] ?? 0,
          points,
          changed: draw,
          failed: (error) => put(said, failed(error)),
        }),
    );
    for (const each of curves) each.ask(wanted);
    if (!wanted.length) put(grid, empty("The two runs have no value in common."));
  }

  function titles() {
    const [one, two] = [context.run.name || id, other.name || other.id];
    return one === two ? [`${one} (${id.slice(-6)})`, `${two} (${other.id.slice(-6)})`] : [one, two];
  }

  function draw() {
    if (gone || curves.length < 2) return;
    const marks = step === null ? [] : [{ step, severity: "parting" }];
    const names = titles();
    for (const { name, chart } of charts) {
      chart.show(
        curves.map((each, at) => ({ name: names[at], points: each.of(name), colour: colourOf(at), dash: at === 1 })),
        marks,
      );
    }
  }

  /** The sentence, what parted, and what the runs were started with. */
  function tell(answer) {
    const { parted, layer, layers, settings = {}, notes = [] } = answer;
    const rows = [];
    const row = (what, at, values) =>
      rows.push(
        h(
          "tr",
          {},
          h("th", { scope: "row" }, what),
          h("td", {}, at),
          h("td", {}, values[0]),
          h("td", {}, values[1]),
          h("td", {}, values[2] ?? ""),
        ),
      );
    if (parted)
      row(`${parted.quantity}${parted.layer ? ` of ${parted.layer}` : ""}`, whole(parted.step), [
        ...(parted.values ?? []).map((value) => number(value)),
        percent(parted.relative),
      ]);
    if (layer && layer.layer !== parted?.layer) {
      row(`${layer.quantity} of ${layer.layer}`, whole(layer.step), [
        ...(layer.values ?? []).map((value) => number(value)),
        percent(layer.relative),
      ]);
    }
    const [one, two] = titles();
    put(
      said,
      h(
        "section",
        { class: "panel parted" },
        h(
          "div",
          { class: "run-title" },
          h(
            "p",
            { class: "message" },
            answer.sentence ??
              (parted
                ? `The runs part at step ${whole(parted.step)}, in ${parted.quantity}.`
                : "The runs do not part."),
          ),
          parted &&
            h(
              "button",
              { type: "button", on: { click: () => look(parted.step) } },
              `Zoom to step ${whole(parted.step)}`,
            ),
        ),
        Array.isArray(layers) &&
          layers[0] > 0 &&
          h("p", { class: "muted" }, `${whole(layers[0])} of ${whole(layers[1])} layers differ there.`),
        rows.length > 0 &&
          h(
            "div",
            { class: "scroll" },
            h(
              "table",
              { class: "facts-table" },
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ["parted first", "step", one, two, "apart"].map((title) => h("th", { scope: "col" }, title)),
                ),
              ),
              h("tbody", {}, rows),
            ),
          ),
        Object.keys(settings).length > 0 &&
          h(
            "details",
            { class: "evidence", open: true },
            h("summary", {}, "Started differently"),
            h(
              "div",
              { class: "scroll" },
              h(
                "table",
                { class: "facts-table" },
                h(
                  "tbody",
                  {},
                  Object.entries(settings).map(([name, [mine, theirs]]) =>
                    h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, plain(mine)), h("td", {}, plain(theirs))),
                  ),
                ),
              ),
            ),
          ),
        notes.length > 0 && h("p", { class: "muted" }, notes.join(" · ")),
        h("p", {}, h("a", { href: `#/run/${encodeURIComponent(other.id)}` }, "Open the second run")),
      ),
    );
  }

  function look(at) {
    const [start, stop] = span.range();
    const room = Math.max(10, Math.min(100, (stop - start) / 8));
    span.set(at - room, at + room);
  }

  list();
  return {
    change: () => curves.forEach((each) => each.ask()),
    reload: list,
    batch() {
      if (!span.follows || timer || !curves.length) return;
      timer = setTimeout(() => {
        timer = 0;
        curves[0]?.ask();
      }, EVERY);
    },
    leave() {
      gone = true;
      clearTimeout(timer);
      clear();
    },
  };
}
