// The log of a run, oldest first, filtered on the server.

import { get, Gone, runPath } from "./api.js";
import { choice, empty, failed, h, put, say } from "./dom.js";
import { dated, clock, many, moment, plain } from "./format.js";

const PAGE = 200;
const MOST = 1000; // rows on the page; the oldest go

export function mountEvents(panel, context) {
  const { id, query, setQuery } = context;
  const filter = { type: query.type ?? "", level: query.level ?? "", text: query.text ?? "", rank: query.rank ?? "" };
  let next = 0;
  let asked = 0;
  let full = false; // there may be later ones that are not on the page yet
  let timer = 0;
  let gone = false;
  const types = new Set(filter.type ? [filter.type] : []);
  const search = h("input", {
    type: "search",
    placeholder: "Filter by text",
    "aria-label": "Filter by text",
    value: filter.text,
    autocomplete: "off",
    on: {
      input: () => {
        clearTimeout(timer);
        timer = setTimeout(() => change({ text: search.value.trim() }), 150);
      },
    },
  });
  const typePlace = h("span", {});
  const level = choice(
    "Level",
    [{ value: "", label: "any level" }, "debug", "info", "warning", "error", "critical"],
    filter.level,
    (value) => change({ level: value }),
  );
  const rank =
    context.run.ranks.length > 1 &&
    choice(
      "Rank",
      [
        { value: "", label: "any rank" },
        ...context.run.ranks.map((each) => ({ value: String(each), label: `rank ${each}` })),
      ],
      filter.rank,
      (value) => change({ rank: value }),
    );
  const count = h("span", { class: "muted", role: "status" });
  const body = h("ol", { class: "events" });
  const more = h("button", { type: "button", hidden: true, on: { click: () => ask(false) } }, "Show later ones");
  const notice = h("div", {});
  put(
    panel,
    h("div", { class: "bar" }, search, typePlace, level, rank, h("span", { class: "grow" }), count),
    notice,
    body,
    h("div", { class: "center" }, more),
  );

  function drawTypes() {
    put(
      typePlace,
      choice("Type", [{ value: "", label: "any type" }, ...[...types].sort()], filter.type, (value) =>
        change({ type: value }),
      ),
    );
  }

  function change(part) {
    Object.assign(filter, part);
    setQuery(filter);
    ask(true);
  }

  async function ask(anew) {
    const mine = ++asked;
    if (anew) next = 0;
    try {
      const answer = await get(runPath(id, "events"), { ...filter, after: next, limit: PAGE }, context.signal);
      if (gone || mine !== asked) return;
      if (anew) put(body);
      full = answer.events.length >= PAGE;
      next = answer.next ?? next;
      add(answer.events);
      const none = context.run.state === "live" ? "No event yet." : "No event was recorded.";
      const what = "What the run was asked for, what its record complains of and what a logger writes are events.";
      put(notice, !body.children.length && (isFiltered() ? empty("No event is like that.") : empty(none, what)));
      more.hidden = !full;
    } catch (error) {
      if (!gone && mine === asked && !(error instanceof Gone) && !context.signal.aborted)
        put(
          notice,
          failed(error, () => ask(true)),
        );
    }
  }

  function isFiltered() {
    return Object.values(filter).some(Boolean);
  }

  function add(events) {
    const before = types.size;
    for (const event of events) types.add(event.event_type);
    body.append(...events.map(row));
    while (body.children.length > MOST) body.firstChild.remove();
    if (types.size !== before || !typePlace.children.length) drawTypes();
    say(count, body.children.length ? many(body.children.length, "event") : "");
  }

  ask(true);
  return {
    batch({ events }) {
      if (events?.length && !full) ask(false);
    },
    reload: () => ask(true),
    leave() {
      gone = true;
      clearTimeout(timer);
    },
  };
}

function row(event) {
  const at = moment(event.timestamp);
  const data = event.data && Object.keys(event.data).length ? event.data : null;
  return h(
    "li",
    { class: `event is-${event.level}` },
    h("time", { title: dated(at) }, clock(at)),
    h("span", { class: "event-level" }, event.level),
    h("span", { class: "event-type" }, event.event_type),
    h(
      "span",
      { class: "event-message" },
      event.message,
      data &&
        h(
          "details",
          {},
          h("summary", {}, "data"),
          h(
            "dl",
            {},
            Object.entries(data).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, plain(value)))),
          ),
        ),
    ),
    h("span", { class: "muted" }, `rank ${event.rank}`),
  );
}
