// The ranks of a run side by side: a table, and a curve for each; of many a band over all, and who stands out of it.

import { get, Gone, runPath } from "./api.js";
import { Chart, plotly } from "./charts.js";
import { resolution } from "./curves.js";
import { adding, failed, h, put, say } from "./dom.js";
import { dated, many, moment, number, percent, real, valued, whole } from "./format.js";
import { counts, stateDot, statusChip } from "./icons.js";
import { unitOf } from "./overview.js";
import { fromServer, none } from "./points.js";
import { colourOf } from "./theme.js";

const FIRST = ["loss", "time/step", "grad/norm", "memory/rss"];
const FEW = 8; // so many ranks have a curve each; of more there is a band
const DRAWN = 8; // curves beside a band, at most
const ROWS = 12; // of the table, on one page
const POINTS = 240; // of a band
const READ = 128; // so many ranks are read for it
const EVERY = 2000; // milliseconds between two looks at a live run
const SHARE = 4; // and so many times what a look takes

const COLUMNS = [
  { id: "rank", title: "Rank" },
  { id: "host", title: "Host", several: true },
  { id: "attempt", title: "Attempt", several: true, fixed: true },
  { id: "status", title: "Status", down: true },
  { id: "steps", title: "Steps" },
  { id: "loss", title: "Last loss", down: true },
  { id: "seconds", title: "Time of a step", down: true },
  { id: "overhead", title: "Overhead", down: true },
  { id: "findings", title: "Findings", down: true },
];

export function mountRanks(panel, context) {
  const { id, span, server, query, setQuery } = context;
  const { names } = context.run;
  const shown = FIRST.filter((name) => names.includes(name));
  if (!shown.includes("loss") && names.some((name) => name.startsWith("loss")))
    shown.unshift(names.find((name) => name.startsWith("loss")));
  const isMany = context.run.ranks.length > FEW;
  const order = { sort: query.sort ?? (isMany ? "gravest" : "rank"), down: query.down === "1", from: Number(query.from) || 0 };
  const pinned = new Set(
    String(query.ranks ?? "")
      .split(",")
      .filter((each) => /^\d+$/.test(each))
      .map(Number),
  );
  let charts = [];
  let curves = {}; // of single ranks, by rank and name
  let bands = {};
  let listed = null;
  let timer = 0;
  let took = 0;
  let gone = false;
  let asking = null;
  let listing = null;
  const table = h("div", { class: "scroll" });
  const pages = h("div", { class: "pages" });
  const attempts = h("div", {});
  const grid = h("div", { class: "charts two" });
  const notice = h("div", {});
  const remark = h("p", { class: "muted remark" });
  const reset = h(
    "button",
    {
      type: "button",
      class: "gravest",
      title: "those first that most call for a look",
      "data-focus": "gravest",
      on: { click: () => reorder("gravest", false) },
    },
    "Gravest first",
  );
  put(
    panel,
    notice,
    h(
      "section",
      { class: "panel", "aria-label": "Ranks side by side" },
      h(
        "header",
        { class: "panel-head" },
        h("h3", {}, many(context.run.ranks.length, "rank")),
        h("span", { class: "grow" }),
        isMany && reset,
      ),
      table,
      pages,
    ),
    attempts,
    remark,
    grid,
  );

  // -- the table --

  function reorder(sort, down) {
    Object.assign(order, { sort, down, from: 0 });
    list();
  }

  async function list() {
    setQuery({ sort: order.sort, down: order.down ? "1" : null, from: order.from ? String(order.from) : null });
    listing?.abort();
    listing = new AbortController();
    const { signal } = listing;
    try {
      const asked = { sort: order.sort, descending: order.down, limit: ROWS, offset: order.from };
      const answer = await get(runPath(id, "ranks"), asked, signal);
      if (signal.aborted || gone) return;
      if (!answer.ranks.length && order.from > 0) {
        order.from = 0;
        list();
        return;
      }
      listed = answer;
      drawTable();
    } catch (error) {
      if (!signal.aborted && !gone && !(error instanceof Gone)) put(notice, failed(error, list));
    }
  }

  function drawTable() {
    const { ranks, total, offset } = listed;
    const wanted = COLUMNS.filter(
      ({ id: name, several }) => !several || new Set(ranks.map((side) => side[name])).size > 1 || order.sort === name,
    );
    reset.setAttribute("aria-pressed", String(order.sort === "gravest"));
    const focused = table.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    put(
      table,
      h(
        "table",
        { class: "facts-table ranks-table" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            wanted.map((column) => heading(column)),
          ),
        ),
        h(
          "tbody",
          {},
          ranks.map((side) => row(side, wanted)),
        ),
      ),
    );
    if (focused) table.querySelector(`[data-focus="${focused}"]`)?.focus({ preventScroll: true });
    const last = Math.min(offset + ranks.length, total);
    const turn = (title, from, off) =>
      h("button", { type: "button", disabled: off, on: { click: () => ((order.from = from), list()) } }, title);
    put(
      pages,
      total > ROWS && [
        turn("‹ Previous", Math.max(0, offset - ROWS), offset === 0),
        h("span", { role: "status" }, `${whole(offset + 1)} to ${whole(last)} of ${whole(total)}`),
        turn("Next ›", offset + ROWS, last >= total),
      ],
    );
    put(attempts, listed.attempts.length > 1 && attemptsOf(listed.attempts));
  }

  function heading({ id: name, title, down = false, fixed = false }) {
    if (fixed) return h("th", { scope: "col" }, title);
    const own = order.sort === name;
    const next = own ? !order.down : down;
    return h(
      "th",
      { scope: "col", "aria-sort": own ? (order.down ? "descending" : "ascending") : null },
      h(
        "button",
        { type: "button", class: "sorter", "data-focus": `sort-${name}`, on: { click: () => reorder(name, next) } },
        title,
        h("span", { "aria-hidden": "true" }, own ? (order.down ? " ▾" : " ▴") : ""),
      ),
    );
  }

  function row(side, wanted) {
    const value = { loss: real(side.loss), seconds: real(side.seconds) };
    const cells = {
      host: () => side.host ?? "–",
      attempt: () => String(side.attempt),
      status: () => [statusChip(side.status), side.life && side.life !== "ended" && stateDot(side.life), ended(side)],
      steps: () => whole(side.steps),
      loss: () => (side.loss === null ? "–" : number(value.loss)),
      seconds: () => (side.seconds === null ? "–" : valued(value.seconds, "seconds")),
      overhead: () => percent(side.overhead),
      findings: () => counts(side.findings),
    };
    return h(
      "tr",
      {},
      wanted.map(({ id: name }) =>
        name === "rank"
          ? h("th", { scope: "row" }, isMany ? pin(side.rank) : String(side.rank))
          : h("td", { class: name === "loss" && !Number.isFinite(value.loss) && side.loss !== null ? "is-bad" : null }, cells[name]()),
      ),
    );
  }

  /** How a process ended, if it did not come to its end. */
  function ended({ exit }) {
    const told = String(exit?.exception ?? "").split("\n")[0];
    return told && h("span", { class: "muted", title: exit.exception }, ` ${told.slice(0, 60)}`);
  }

  /** A rank that may be drawn beside the band. */
  function pin(rank) {
    return h(
      "button",
      {
        type: "button",
        class: "pin",
        title: "draw its curves",
        "aria-pressed": String(pinned.has(rank)),
        "data-focus": `pin-${rank}`,
        on: {
          click: () => {
            if (!pinned.delete(rank)) pinned.add(rank);
            setQuery({ ranks: [...pinned].join(",") || null });
            drawTable();
            ask();
          },
        },
      },
      String(rank),
    );
  }

  function attemptsOf(every) {
    return h(
      "section",
      { class: "panel", "aria-label": "Attempts" },
      h("header", { class: "panel-head" }, h("h3", {}, many(every.length, "attempt"))),
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
              ["Attempt", "From step", "Started", "Why"].map((title) => h("th", { scope: "col" }, title)),
            ),
          ),
          h(
            "tbody",
            {},
            every.map(({ number: at, first, started, reason }) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, String(at)),
                h("td", {}, whole(first)),
                h("td", {}, dated(moment(started))),
                h("td", {}, reason ?? "–"),
              ),
            ),
          ),
        ),
      ),
    );
  }

  // -- the curves --

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
    if (isMany && !Object.keys(bands).length) say(remark, "Reading the ranks…");
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    const began = performance.now();
    try {
      const asked = { name: shown, ...span.query() };
      if (isMany) {
        const points = Math.min(POINTS, resolution(grid));
        const band = await get(runPath(id, "series"), { ...asked, points, rank: "all", summary: true, most: READ }, signal);
        const apart = chosen(band.summary);
        const single = apart.length
          ? await get(runPath(id, "series"), { ...asked, points, rank: rangeOf(apart) }, signal)
          : { ranks: {} };
        if (signal.aborted || gone) return;
        bands = band.summary;
        curves = single.ranks;
        say(remark, band.read < band.of ? sampled(band) : "");
      } else {
        const answer = await get(runPath(id, "series"), { ...asked, points: Math.min(500, resolution(grid)), rank: "all" }, signal);
        if (signal.aborted || gone) return;
        curves = answer.ranks;
      }
      took = performance.now() - began;
      put(notice);
      draw();
    } catch (error) {
      if (!signal.aborted && !gone && !(error instanceof Gone)) put(notice, failed(error, ask));
    }
  }

  function sampled({ read, of }) {
    return `The bands are over ${whole(read)} of ${whole(of)} ranks: those that most call for a look, and others evenly spread.`;
  }

  /** Those whose own curves are drawn: what the reader chose, then those that stand out in some chart. */
  function chosen(summary) {
    const apart = [...pinned];
    for (let place = 0; place < 4; place += 1)
      for (const { outliers } of Object.values(summary)) if (place < outliers.length) apart.push(outliers[place]);
    return [...new Set(apart)].slice(0, DRAWN);
  }

  function draw() {
    const ranks = Object.keys(curves)
      .map(Number)
      .sort((one, other) => one - other);
    for (const { name, chart } of charts) {
      const drawn = ranks.map((rank, at) => ({
        name: `rank ${rank}`,
        points: curves[rank]?.[name] ? fromServer(curves[rank][name]) : none(),
        colour: colourOf(isMany ? at + 1 : at),
        dash: at >= 9,
        rank,
      }));
      const band = bands[name];
      const own = band ? drawn.filter(({ rank }) => pinned.has(rank) || band.outliers.includes(rank)) : drawn;
      const told = own.some(({ points }) => points.bad.some((bad) => bad > 0)); // what is not finite is marked once
      chart.show([...(band ? bandsOf(band, unitOf(name), !told) : []), ...own], marks());
    }
  }

  function marks() {
    return context.findings.map(({ step, severity }) => ({ step, severity }));
  }

  list();
  plotly(server.plotly).then(
    () => !gone && build(),
    (error) => put(notice, failed(error)),
  );
  return {
    change: ask,
    reload() {
      list();
      ask();
    },
    found: draw,
    batch() {
      if (!timer)
        timer = setTimeout(
          () => {
            timer = 0;
            list();
            if (span.follows) ask();
          },
          Math.max(EVERY, SHARE * took),
        );
    },
    leave() {
      gone = true;
      clearTimeout(timer);
      asking?.abort();
      listing?.abort();
      for (const { chart } of charts) chart.dispose();
    },
  };
}

/** `3,17` */
function rangeOf(ranks) {
  return `${ranks.join(",")}${ranks.length === 1 ? `,${ranks[0]}` : ""}`; // a list, also of one
}

/** A summary of ranks as two bands around one line: from the lowest to the highest, and the middle half. */
function bandsOf(band, unit, marked) {
  const column = (name) => band[name].map(real);
  const [median, low, high, q1, q3] = ["median", "low", "high", "q1", "q3"].map(column);
  const shape = { first: band.first, steps: band.steps, mean: median, last: median, width: 1 };
  const count = band.count.map((ranks) => Math.max(2, ranks));
  const clean = band.count.map(() => 0);
  const told = (from, to, place, who) =>
    `${valued(median[place], unit)} (${valued(from[place], unit)}${who ? ` rank ${band.low_who[place]}` : ""} to ` +
    `${valued(to[place], unit)}${who ? ` rank ${band.high_who[place]}` : ""})`;
  const colour = colourOf(0);
  return [
    {
      name: "median, lowest to highest",
      colour,
      points: { ...shape, low, high, count, bad: marked ? band.bad : clean, said: median.map((_, place) => told(low, high, place, true)) },
    },
    {
      name: "middle half",
      colour,
      points: { ...shape, low: q1, high: q3, count, bad: clean, said: median.map((_, place) => told(q1, q3, place)) },
    },
  ];
}
