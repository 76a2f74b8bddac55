// What can be asked of a live run, and what became of it.

import { Gone, runPath, send } from "./api.js";
import { announce, h, put, segments } from "./dom.js";
import { clock, moment, percent, plain } from "./format.js";
import { inline } from "./markdown.js";

const LEVELS = [
  { value: "basic", label: "basic", title: "loss, gradient norms, learning rates, step time" },
  { value: "advanced", label: "advanced", title: "and statistics of every layer" },
  { value: "extreme", label: "extreme", title: "and every step in full" },
];
const MOST = 50; // requests that are kept

export function mountControls(place, context) {
  if (context.server.read_only) return { requests() {}, refresh() {}, leave() {} };
  const known = new Map();
  const ready = new Set(); // those whose answer is known
  const levels = segments("Level", LEVELS, context.run.level, (level) => ask("level", level));
  const budget = h("input", {
    type: "number",
    min: "0.1",
    max: "100",
    step: "any",
    "aria-label": "Budget in per cent of the time",
    inputmode: "decimal",
  });
  const setBudget = h(
    "form",
    {
      class: "budget",
      on: {
        submit: (event) => {
          event.preventDefault();
          const share = Number(budget.value) / 100;
          if (share > 0 && share <= 1) ask("budget", share);
          else budget.focus();
        },
      },
    },
    budget,
    h("span", { class: "muted", "aria-hidden": "true" }, "%"),
    h("button", { type: "submit" }, "Set"),
  );
  const button = (kind, title, hint) =>
    h("button", { type: "button", "data-ask": kind, title: hint, on: { click: () => ask(kind) } }, title);
  const stop = h(
    "button",
    { type: "button", "data-ask": "stop", class: "danger", on: { click: () => sure.showModal() } },
    "Stop…",
  );
  const log = h("ul", { class: "requests", "aria-label": "Requests" });
  const sure = h(
    "dialog",
    { class: "sheet", "aria-labelledby": "stop-title" },
    h("h2", { id: "stop-title" }, "Stop this run?"),
    h("p", {}, "The training process ends after the step it is in. Everything that was recorded is kept."),
    h(
      "div",
      { class: "sheet-buttons" },
      h("button", { type: "button", on: { click: () => sure.close() } }, "Let it run"),
      h(
        "button",
        {
          type: "button",
          class: "danger is-solid",
          on: {
            click: () => {
              sure.close();
              ask("stop");
            },
          },
        },
        "Stop it",
      ),
    ),
  );
  const element = h(
    "section",
    { class: "controls", "aria-label": "Controls of the live run" },
    h("span", { class: "control" }, h("span", { class: "muted" }, "Level"), levels),
    h("span", { class: "control" }, h("span", { class: "muted" }, "Budget"), setBudget),
    h(
      "span",
      { class: "control" },
      button("capture", "Capture", "keep the next step, to be replayed"),
      button("trace", "Trace", "profile the next steps"),
      button("clear", "Clear counters", "start the counters again; the record stays"),
      stop,
    ),
    log,
    sure,
  );
  put(place, element);

  async function ask(kind, value = null) {
    const waiting = `new ${kind}`;
    known.set(waiting, { kind, value, created: null, sending: true });
    draw();
    try {
      const { request } = await send("POST", runPath(context.id, "requests"), { kind, value });
      known.delete(waiting);
      requests([request]);
    } catch (error) {
      known.delete(waiting);
      const id = `failed ${kind}`;
      known.delete(id);
      known.set(id, { id, kind, value, refused: error instanceof Gone ? "the server does not answer" : error.message });
      draw();
    }
  }

  /** Takes what the server knows of requests. The stream may be ahead of the answer to the call: nothing goes back. */
  function requests(changed) {
    for (const request of changed) {
      const before = known.get(request.id);
      const now = { ...request, taken: request.taken ?? before?.taken, answer: request.answer ?? before?.answer };
      known.delete(`failed ${request.kind}`);
      known.set(request.id, now);
      if (!ready.has(now.id) && now.answer) {
        if (before) announce(`${told(now)}: ${plain(now.answer)}`);
        ready.add(now.id);
      }
    }
    for (const old of [...known.keys()].slice(0, Math.max(0, known.size - MOST))) {
      known.delete(old);
      ready.delete(old);
    }
    draw();
  }

  /** The newest three: the word says how far it has come. */
  function draw() {
    const newest = [...known.values()].slice(-3).reverse();
    put(
      log,
      newest.map((request) => {
        const state = stateOf(request);
        const at = request.created ? clock(moment(request.created)) : "";
        return h(
          "li",
          { class: `request is-${state}`, "data-kind": request.kind, "data-state": state },
          h("b", {}, told(request)),
          " ",
          h("span", {}, inline(wordOf(request, state))),
          " ",
          h("time", { class: "muted" }, at),
        );
      }),
    );
  }

  function refresh() {
    const { run } = context;
    element.hidden = run.state !== "live" && known.size === 0;
    const over = run.state !== "live";
    for (const control of element.querySelectorAll(".control")) control.hidden = over;
    if (over && sure.open) sure.close();
    levels.press(run.level);
    if (document.activeElement !== budget && run.budget)
      budget.value = String(Number((run.budget * 100).toPrecision(3)));
  }

  refresh();
  return { requests, refresh, leave: () => sure.close() };
}

function told({ kind, value }) {
  if (kind === "budget" && typeof value === "number") return `budget ${percent(value)}`;
  return value === null || value === undefined ? kind : `${kind} ${plain(value)}`;
}

function stateOf(request) {
  if (request.refused) return "refused";
  if (request.sending) return "sending";
  if (request.answer !== null && request.answer !== undefined) return "answered";
  return request.taken ? "taken" : "asked";
}

function wordOf(request, state) {
  return {
    refused: `refused: ${request.refused}`,
    sending: "asking…",
    answered: plain(request.answer),
    taken: "taken",
    asked: "asked, not taken yet",
  }[state];
}
