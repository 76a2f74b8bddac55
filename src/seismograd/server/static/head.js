// What stands above the views of a run: its head, and the steps in view.

import { h, put, say } from "./dom.js";
import { verdict } from "./findings.js";
import { ago, bytes, dated, duration, many, moment, percent, whole } from "./format.js";
import { stateDot, statusChip } from "./icons.js";

const SHORT = 30; // seconds: in a shorter run the watch lives off its grace, and its share says nothing

function shareOf({ overhead, budget }) {
  return budget ? `${percent(overhead)} (budget ${percent(budget)})` : percent(overhead);
}

/** Name, status, verdict and the few numbers one looks for first. */
export function runHead() {
  const title = h("h1", { tabindex: -1 });
  const chips = h("span", { class: "chips" });
  const line = h("p", { class: "verdict" });
  const facts = h("dl", { class: "facts" });
  const element = h(
    "div",
    { class: "run-head" },
    h(
      "div",
      { class: "run-title" },
      h(
        "nav",
        { class: "crumbs", "aria-label": "Where you are" },
        h("a", { href: "#/" }, "Runs"),
        h("span", { "aria-hidden": "true" }, "/"),
      ),
      title,
      chips,
    ),
    line,
    facts,
  );
  let shown = "";
  return {
    element,
    refresh(run, findings, rate) {
      say(title, run.name || run.id);
      say(line, verdict(run, findings));
      line.className = `verdict is-${run.status}`;
      const chipsNow = `${run.status} ${run.state}`;
      if (chipsNow !== shown) {
        shown = chipsNow;
        put(chips, statusChip(run.status), stateDot(run.state));
      }
      const started = moment(run.started);
      const ended = moment(run.ended);
      const live = run.state === "live";
      const took = started && (ended || live) ? ((ended?.getTime() ?? Date.now()) - started.getTime()) / 1000 : NaN;
      const pairs = [
        ["steps", whole(run.steps)],
        live && rate ? ["speed", `${rate >= 10 ? whole(rate) : rate.toFixed(1)} steps/s`] : null,
        ["level", run.level ?? "–"],
        took >= SHORT && Number.isFinite(run.overhead) ? ["overhead", shareOf(run)] : null,
        [live ? "running for" : "took", duration(took)],
        ["started", ago(started), dated(started)],
        run.ranks.length > 1 ? ["ranks", whole(run.ranks.length)] : null,
        run.attempts?.length > 1 ? ["attempts", whole(run.attempts.length)] : null,
        run.bytes ? ["on disk", bytes(run.bytes)] : null,
        ["id", run.id],
      ].filter(Boolean);
      if (facts.children.length !== pairs.length)
        put(
          facts,
          pairs.map(() => h("div", {}, h("dt", {}), h("dd", {}))),
        );
      pairs.forEach(([name, value, hint], at) => {
        const [dt, dd] = facts.children[at].children;
        say(dt, name);
        say(dd, value);
        if (hint) dd.title = hint;
      });
    },
  };
}

/** The steps in view, to be set by hand; the same as dragging in a chart. */
export function spanTools(span) {
  const from = h("input", { type: "number", "aria-label": "First step in view", inputmode: "numeric" });
  const to = h("input", { type: "number", "aria-label": "Last step in view", inputmode: "numeric" });
  const set = () => span.set(Number(from.value), Number(to.value));
  for (const input of [from, to]) {
    input.addEventListener("change", set);
  }
  const button = (mark, name, act) =>
    h("button", { type: "button", "aria-label": name, title: name, on: { click: act } }, mark);
  const follow = h(
    "button",
    { type: "button", class: "follow", title: "key f", on: { click: () => span.follow() } },
    "Follow",
  );
  const all = h(
    "button",
    { type: "button", title: "double click in a chart, or Esc", on: { click: () => span.all() } },
    "All",
  );
  const element = h(
    "div",
    { class: "span-tools", role: "group", "aria-label": "Steps in view" },
    h("span", { class: "muted" }, "steps"),
    from,
    h("span", { class: "muted", "aria-hidden": "true" }, "–"),
    to,
    button("−", "Zoom out", () => span.zoom(2)),
    button("+", "Zoom in", () => span.zoom(0.5)),
    all,
    follow,
  );
  let live = false;
  return {
    element,
    refresh(run) {
      if (run) live = run.state === "live";
      const [start, stop] = span.range();
      if (document.activeElement !== from) from.value = String(Math.round(start));
      if (document.activeElement !== to) to.value = String(Math.round(stop));
      all.disabled = span.isAll;
      follow.hidden = !live;
      follow.setAttribute("aria-pressed", String(span.follows));
      say(follow, span.follows ? "Following" : "Follow");
      element.title = `${many(Math.round(stop - start) + 1, "step")} in view`;
    },
  };
}
