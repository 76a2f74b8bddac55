// The list of runs: newest first, kept up to date, searched on the server.

import { connection, Gone, get } from "./api.js";
import { choice, empty, failed, h, put, say } from "./dom.js";
import { ago, dated, duration, many, moment, whole } from "./format.js";
import { counts, spark, stateDot, statusChip } from "./icons.js";

const PAGE = 50;
const MOST = 200; // in one answer
const EVERY = 1500; // milliseconds between two looks

export function mountList(root, { query, setQuery, server }) {
  const filter = { text: query.text ?? "", status: query.status ?? "", state: query.state ?? "" };
  let limit = PAGE;
  let rows = new Map();
  let timer = 0;
  let left = false;
  let asked = 0;

  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Search runs",
    "aria-label": "Search runs",
    value: filter.text,
    autocomplete: "off",
    spellcheck: "false",
    on: { input: () => change({ text: search.value.trim() }) },
  });
  const any = (word) => [{ value: "", label: word }];
  const status = choice(
    "Status",
    [...any("any status"), "healthy", "warning", "critical", "crashed"],
    filter.status,
    (value) => change({ status: value }),
  );
  const state = choice("State", [...any("any state"), "live", "ended", "lost"], filter.state, (value) =>
    change({ state: value }),
  );
  const total = h("span", { class: "muted", role: "status" });
  const body = h("tbody", {});
  const table = h(
    "table",
    { class: "runs", hidden: true },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ["Status", "Run", "Loss", "Steps", "Findings", "Level", "Started", "Took"].map((title) =>
          h("th", { scope: "col" }, title),
        ),
      ),
    ),
    body,
  );
  const more = h(
    "button",
    {
      type: "button",
      class: "more",
      hidden: true,
      on: {
        click: () => {
          limit += PAGE;
          look();
        },
      },
    },
    "Show more",
  );
  const notice = h("div", {});
  put(
    root,
    h(
      "div",
      { class: "bar" },
      h("h1", { tabindex: -1 }, "Runs"),
      total,
      h("span", { class: "grow" }),
      search,
      status,
      state,
    ),
    notice,
    table,
    h("div", { class: "center" }, more),
  );

  function change(part) {
    Object.assign(filter, part);
    limit = PAGE;
    setQuery(filter);
    look();
  }

  async function look() {
    clearTimeout(timer);
    const mine = ++asked;
    try {
      const pages = [];
      for (let offset = 0; offset < limit; offset += MOST) {
        pages.push(await get("/api/runs", { ...filter, limit: Math.min(MOST, limit - offset), offset }));
        if (left || mine !== asked) return;
        if (offset + MOST >= pages[0].total) break;
      }
      show({ runs: pages.flatMap((page) => page.runs), total: pages[0].total });
    } catch (error) {
      if (left || mine !== asked || error instanceof Gone) return;
      put(notice, failed(error, look));
    }
    if (!document.hidden) timer = setTimeout(look, EVERY);
  }

  function show({ runs, total: count }) {
    const filtered = filter.text || filter.status || filter.state;
    say(total, count || filtered ? many(count, "run") : "");
    table.hidden = !runs.length;
    more.hidden = runs.length >= count;
    if (runs.length) put(notice);
    else if (filtered)
      put(
        notice,
        empty("No run is like that.", h("button", { type: "button", on: { click: clear } }, "Show all runs")),
      );
    else
      put(
        notice,
        empty(
          "No run yet.",
          h("code", { class: "command" }, "seismograd run train.py"),
          "It appears here as soon as it makes its first step.",
          h("span", { class: "muted" }, server.store ?? ""),
        ),
      );
    const next = new Map();
    for (const run of runs) {
      const row = rows.get(run.id) ?? newRow(run);
      refresh(row, run);
      next.set(run.id, row);
    }
    const order = [...next.values()].map((row) => row.element);
    if (order.length !== body.children.length || order.some((element, at) => body.children[at] !== element))
      reorder(order);
    rows = next;
    if (![...body.children].some((element) => element.querySelector("a").tabIndex === 0)) select(0, false);
    document.title = liveTitle(runs);
  }

  function clear() {
    search.value = status.value = state.value = "";
    change({ text: "", status: "", state: "" });
  }

  /** Focus stays where it is while rows come and go. */
  function reorder(order) {
    const focused = document.activeElement;
    put(body, order);
    if (focused && body.contains(focused)) focused.focus({ preventScroll: true });
  }

  function select(at, focus = true) {
    const links = [...body.querySelectorAll("a")];
    if (!links.length) return;
    const chosen = links[Math.max(0, Math.min(links.length - 1, at))];
    for (const link of links) link.tabIndex = link === chosen ? 0 : -1;
    if (focus) {
      chosen.focus();
      chosen.closest("tr").scrollIntoView({ block: "nearest" });
    }
  }

  function keys(event) {
    const links = [...body.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    const inSearch = document.activeElement === search;
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, j: at + 1, k: at - 1, Home: 0, End: links.length - 1 };
    if (event.key in moves && !(inSearch && event.key !== "ArrowDown") && document.activeElement.tagName !== "SELECT") {
      event.preventDefault();
      select(at < 0 ? 0 : moves[event.key]);
    } else if (event.key === "/" && !inSearch) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "Enter" && inSearch) {
      links[0]?.click();
    } else if (event.key === "Escape" && (search.value || status.value || state.value)) {
      clear();
    }
  }

  const seen = () => {
    if (!document.hidden) look();
  };
  document.addEventListener("visibilitychange", seen);
  connection.addEventListener("back", look);
  look();
  return {
    keys,
    leave() {
      left = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
      connection.removeEventListener("back", look);
    },
  };
}

function liveTitle(runs) {
  const live = runs.filter((run) => run.state === "live").length;
  return live ? `${live} live · Runs · Seismograd` : "Runs · Seismograd";
}

function newRow(run) {
  const cell = (name, ...children) => h("td", { class: `c-${name}` }, ...children);
  const link = h("a", { href: `#/run/${encodeURIComponent(run.id)}`, tabindex: -1 });
  const parts = Object.fromEntries(
    ["status", "loss", "steps", "findings", "level", "started", "took"].map((name) => [name, cell(name)]),
  );
  const state = h("span", {});
  const element = h(
    "tr",
    {
      on: {
        click: (event) => {
          if (!event.target.closest("a")) link.click();
        },
      },
    },
    parts.status,
    cell("run", h("div", {}, link, state), h("span", { class: "id" }, run.id)),
    parts.loss,
    parts.steps,
    parts.findings,
    parts.level,
    parts.started,
    parts.took,
  );
  return { element, link, state, parts, shown: "" };
}

/** Draws a row anew only when something in it changed; times go on by themselves. */
function refresh(row, run) {
  const started = moment(run.started);
  const ended = moment(run.ended);
  const now = Date.now();
  say(row.parts.started, ago(started, now));
  row.parts.started.title = dated(started);
  const end = run.state === "ended" ? ended?.getTime() : run.state === "live" ? now : NaN;
  say(row.parts.took, started && end ? duration((end - started.getTime()) / 1000) : "–");
  const shown = JSON.stringify([
    run.name,
    run.status,
    run.state,
    run.steps,
    run.level,
    run.findings,
    run.spark,
    run.ranks,
  ]);
  if (shown === row.shown) return;
  row.shown = shown;
  say(row.link, run.name || run.id);
  put(
    row.state,
    run.state === "ended" ? null : stateDot(run.state),
    run.ranks?.length > 1 && h("span", { class: "tag" }, `${whole(run.ranks.length)} ranks`),
  );
  put(row.parts.status, statusChip(run.status));
  put(row.parts.loss, spark(run.spark ?? []));
  say(row.parts.steps, whole(run.steps));
  put(row.parts.findings, counts(run.findings));
  say(row.parts.level, run.level ?? "–");
}
