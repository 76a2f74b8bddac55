// One run: its head, its tabs, and the live stream that feeds them.

import { back, connection, events, Gone, get, isGone, pause, Refused, runPath } from "./api.js";
import { mountControls } from "./controls.js";
import { mountCompare } from "./compare.js";
import { mountEnvironment } from "./environment.js";
import { mountEvents } from "./events.js";
import { keyOf } from "./findings.js";
import { runHead, spanTools } from "./head.js";
import { announce, failed, h, put } from "./dom.js";
import { mountLayers } from "./layers.js";
import { mountOverview } from "./overview.js";
import { mountRanks } from "./ranks.js";
import { mountResources } from "./resources.js";
import { Span } from "./span.js";

const TABS = [
  { id: "overview", title: "Overview", mount: mountOverview, spans: true },
  { id: "layers", title: "Layers", mount: mountLayers, spans: true },
  { id: "resources", title: "Time and memory", mount: mountResources, spans: true },
  { id: "compare", title: "Compare", mount: mountCompare, spans: true },
  { id: "ranks", title: "Ranks", mount: mountRanks, spans: true, when: (run) => run.ranks.length > 1 },
  { id: "events", title: "Events", mount: mountEvents },
  { id: "environment", title: "Environment", mount: mountEnvironment },
];

const DETAILS = new Set(["names", "tables", "whole", "captures", "summary"]); // what the stream does not tell
const SEEN = 4000; // milliseconds after which names and tables of a live run are asked for again
const UNSEEN = 5000; // milliseconds between two looks at a run whose page is hidden

export function mountRun(root, { id, query, setQuery, server, go }) {
  const leaving = new AbortController();
  const { signal } = leaving;
  const number = (text) => (text !== undefined && text !== "" && Number.isFinite(Number(text)) ? Number(text) : null);
  const span = new Span({ start: number(query.start), stop: number(query.stop), width: number(query.width) });
  let run = null;
  let findings = [];
  let known = null; // keys of the findings that were there at first
  let tab = null;
  let tabId = "";
  let controls = null;
  let names = ["loss"];
  let stream = null;
  let rate = null;

  const context = {
    id,
    span,
    query,
    setQuery: note,
    server,
    signal,
    go,
    get run() {
      return run;
    },
    /** The rank whose curves are shown where one is. */
    get rank() {
      return run.ranks[0] ?? 0;
    },
    get findings() {
      return findings;
    },
    /** The scalars that the live stream should carry. */
    watch(wanted) {
      const next = wanted.length ? [...new Set(wanted)].sort() : ["loss"];
      if (next.join("\n") === names.join("\n")) return;
      names = next;
      stream?.abort();
    },
    /** Builds the view anew: the run has something that it had not. */
    remount() {
      tab?.leave?.();
      mount(TABS.find((each) => each.id === tabId));
    },
  };

  /** What a view shows is kept, for the address and for the next time that the view is opened. */
  function note(change) {
    Object.assign(query, change);
    setQuery(change);
  }

  const head = runHead();
  const strip = h("div", { class: "tabs", role: "tablist", "aria-label": "Views of the run" });
  const tools = spanTools(span);
  const panel = h("div", { class: "tab-panel", role: "tabpanel", id: "panel", tabindex: -1 });
  const notice = h("div", {});
  const controlsPlace = h("div", {});
  put(root, head.element, controlsPlace, h("div", { class: "tab-row" }, strip, tools.element), notice, panel);

  span.addEventListener("change", () => {
    note(span.link());
    tools.refresh();
    tab?.change?.();
  });

  async function load() {
    try {
      const [detail, found, asked] = await Promise.all([
        get(runPath(id), {}, signal),
        get(runPath(id, "findings"), { limit: 1000 }, signal),
        get(runPath(id, "requests"), {}, signal),
      ]);
      run = detail;
      take(found.findings);
      span.grow(run.steps - 1);
      put(notice);
      refresh();
      if (!controls) {
        controls = mountControls(controlsPlace, context);
        choose(query.tab ?? "overview", false);
        follow();
      } else {
        tab?.reload?.();
      }
      controls.requests(asked.requests);
    } catch (error) {
      if (signal.aborted || error instanceof Gone) return;
      document.title = "Not found · Seismograd";
      put(notice, failed(error, load));
    }
  }

  function take(next) {
    findings = next;
    if (known === null) {
      known = new Set(next.map(keyOf));
      return;
    }
    const fresh = next.filter((finding) => !known.has(keyOf(finding)));
    if (!fresh.length) return;
    for (const finding of fresh) known.add(keyOf(finding));
    context.newest = new Set(fresh.map(keyOf));
    announce(
      fresh
        .map((finding) => `New ${finding.severity} finding: ${finding.id}, step ${finding.step}. ${finding.message}`)
        .join(" "),
    );
  }

  function refresh() {
    if (!run) return;
    head.refresh(run, findings, rate);
    document.title = `${run.state === "live" ? "● " : ""}${run.status} · ${run.name || run.id} · Seismograd`;
    drawTabs();
    tools.refresh(run);
    controls?.refresh();
  }

  function shownTabs() {
    return TABS.filter((each) => !each.when || each.when(run));
  }

  function drawTabs() {
    const shown = shownTabs();
    if (strip.children.length !== shown.length) {
      put(
        strip,
        shown.map((each, at) =>
          h(
            "button",
            {
              type: "button",
              role: "tab",
              id: `tab-${each.id}`,
              "aria-controls": "panel",
              title: `key ${at + 1}`,
              on: { click: () => choose(each.id) },
            },
            each.title,
          ),
        ),
      );
    }
    shown.forEach((each, at) => {
      const button = strip.children[at];
      button.setAttribute("aria-selected", String(each.id === tabId));
      button.tabIndex = each.id === tabId ? 0 : -1;
    });
  }

  function choose(wanted, record = true) {
    const next = shownTabs().find((each) => each.id === wanted) ?? TABS[0];
    if (next.id === tabId) return;
    tab?.leave?.();
    tabId = next.id;
    query.tab = tabId;
    if (record) setQuery({ tab: tabId === "overview" ? null : tabId });
    drawTabs();
    const { offsetLeft: left, offsetWidth: wide } = strip.querySelector('[aria-selected="true"]');
    const from = left - strip.offsetLeft; // on a phone the chosen tab may lie outside the strip
    if (from < strip.scrollLeft || from + wide > strip.scrollLeft + strip.clientWidth) strip.scrollLeft = from - 40;
    tools.element.hidden = !next.spans;
    panel.setAttribute("aria-labelledby", `tab-${tabId}`);
    mount(next);
  }

  function mount(view) {
    put(panel);
    tab = view.mount(panel, context);
    if (view.id !== "overview") context.watch([]);
  }

  /** Reads the stream for as long as the run lives and somebody looks. */
  async function follow() {
    let batch = run.batch;
    for (let wait = 250; !signal.aborted && run.state === "live";) {
      stream = new AbortController();
      const stop = () => stream.abort();
      signal.addEventListener("abort", stop, { once: true });
      try {
        if (document.hidden) {
          await unseen();
          continue;
        }
        for await (const { event, data } of events(
          runPath(id, "live"),
          { name: names, from: batch, rank: context.rank },
          stream.signal,
        )) {
          wait = 250;
          const now = event === "batch" ? data.run : data;
          batch = Math.max(batch, now.batch ?? 0);
          heard(now, event === "batch" ? data : {});
          if (event === "ended") {
            await load();
            return;
          }
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused) {
          put(notice, failed(error, load));
          await pause(5000, signal).catch(() => {});
        }
      } finally {
        signal.removeEventListener("abort", stop);
      }
      if (isGone()) {
        await back(signal).catch(() => {});
        batch = 0;
        await load();
        batch = run.batch;
      } else {
        await pause(wait, signal).catch(() => {});
        wait = Math.min(wait * 2, 8000);
      }
    }
  }

  /** While the page is hidden only its title is kept right; then everything is asked for again. */
  async function unseen() {
    while (document.hidden && !signal.aborted && run.state === "live") {
      await Promise.race([
        pause(UNSEEN, signal),
        new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true, signal })),
      ]);
      if (document.hidden) update(await get(runPath(id), {}, signal));
      refresh();
    }
    await load();
  }

  /** Takes a newer state of the run. An answer may arrive after what the stream has said since: that counts. */
  function update(now) {
    const isOld = (now.batch ?? 0) < run.batch;
    for (const [key, value] of Object.entries(now)) if (!isOld || DETAILS.has(key)) run[key] = value;
  }

  let before = null;
  function heard(now, data) {
    update(now);
    const time = performance.now();
    if (before && now.steps > before.steps && time - before.time > 900) {
      rate = (now.steps - before.steps) / ((time - before.time) / 1000);
      before = { steps: now.steps, time };
    }
    before ??= { steps: now.steps, time };
    span.grow(now.steps - 1);
    if (data.findings?.length || !run.names.length || time > seen + SEEN) lookAgain();
    if (data.requests?.length) controls.requests(data.requests);
    refresh();
    tab?.batch?.(data);
  }

  let seen = performance.now();
  let looking = false;
  let again = false;
  /** The order of findings is the server's. */
  async function lookAgain() {
    again = looking;
    if (looking) return;
    looking = true;
    seen = performance.now();
    try {
      const [found, detail] = await Promise.all([
        get(runPath(id, "findings"), { limit: 1000 }, signal),
        get(runPath(id), {}, signal),
      ]);
      update(detail);
      take(found.findings);
      refresh();
      tab?.found?.();
    } catch {
      // the next batch asks again
    }
    looking = false;
    if (again) lookAgain();
  }

  const hide = () => {
    if (document.hidden) stream?.abort();
  };
  document.addEventListener("visibilitychange", hide);
  const backAgain = () => {
    if (!run || run.state !== "live") load();
  };
  connection.addEventListener("back", backAgain);
  const ticking = setInterval(() => {
    if (run && !document.hidden) head.refresh(run, findings, rate);
  }, 1000);
  load();

  return {
    keys(event) {
      const shown = run ? shownTabs() : [];
      const at = shown.findIndex((each) => each.id === tabId);
      if (strip.contains(document.activeElement) && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
        event.preventDefault();
        choose(shown[(at + (event.key === "ArrowRight" ? 1 : shown.length - 1)) % shown.length].id);
        strip.querySelector('[aria-selected="true"]').focus();
      } else if (/^[1-9]$/.test(event.key) && shown[Number(event.key) - 1]) {
        choose(shown[Number(event.key) - 1].id);
      } else if (event.key === "/") {
        const filter = panel.querySelector('input[type="search"]');
        if (!filter) return;
        event.preventDefault();
        filter.focus();
      } else if (event.key === "f") {
        span.follow();
      } else if (event.key === "Escape") {
        if (!span.isAll) span.all();
        else go("#/");
      }
    },
    leave() {
      leaving.abort(new DOMException("left", "AbortError"));
      clearInterval(ticking);
      document.removeEventListener("visibilitychange", hide);
      connection.removeEventListener("back", backAgain);
      tab?.leave?.();
      controls?.leave?.();
    },
  };
}
