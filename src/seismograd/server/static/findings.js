// Findings as cards: what, where, the code line with the place marked, what to do, the evidence, and what follows.

import { h } from "./dom.js";
import { sign } from "./icons.js";
import { brief, many, plain, whole } from "./format.js";
import { inline } from "./markdown.js";

/** What message, place and notes tell already. */
const TOLD = new Set([
  "because",
  "began_on",
  "rank_count",
  "ranks",
  "run",
  "series",
  "columns",
  "origin",
  "pattern",
  "value",
  "op",
  "forward_op",
  "index",
  "first_bad",
  "inputs",
  "arguments",
  "note",
  "sure",
  "library",
  "compiled",
  "gradient_zero",
  "capture",
  "capture_note",
  "limit_note",
]);

/** What stays the same while a finding goes on. */
export function keyOf(finding) {
  return `${finding.id}|${finding.rank}|${finding.evidence?.series ?? ""}`;
}

/** The findings as trees: each cause with what follows from it. */
export function stories(findings) {
  const roots = [];
  const all = findings.map((finding) => ({ finding, effects: [] }));
  const causeOf = (story) =>
    all.find(
      (other) =>
        other !== story &&
        other.finding.id === story.finding.evidence?.because &&
        other.finding.rank === story.finding.rank,
    ) ?? all.find((other) => other !== story && other.finding.id === story.finding.evidence?.because);
  const leadsTo = (story, goal, seen = new Set()) => {
    if (!story || seen.has(story)) return false;
    seen.add(story);
    return story === goal || leadsTo(causeOf(story), goal, seen);
  };
  for (const story of all) {
    const cause = story.finding.evidence?.because ? causeOf(story) : undefined;
    if (cause && !leadsTo(cause, story)) cause.effects.push(story);
    else roots.push(story);
  }
  return roots;
}

/** All effects of a story, in order. */
export function after(story) {
  return story.effects.flatMap((effect) => [effect, ...after(effect)]);
}

export function steps(finding) {
  if (finding.count > 1 && finding.last_step > finding.step) {
    return `steps ${whole(finding.step)} to ${whole(finding.last_step)}, ${many(finding.count, "time")}`;
  }
  return `step ${whole(finding.step)}`;
}

/** File and line, module or parameter, op, rank. */
export function place(finding, ranks = 1) {
  const { where = {}, evidence = {} } = finding;
  const parts = [];
  if (where.file) parts.push(`${brief(where.file)}${where.line ? `:${where.line}` : ""}`);
  if (where.parameter) parts.push(`parameter ${where.parameter}`);
  else if (where.module !== null && where.module !== undefined)
    parts.push(`module ${where.module || "(the model itself)"}`);
  if (where.op) parts.push(where.phase ? `${where.op} in ${where.phase}` : where.op);
  else if (where.phase) parts.push(where.phase);
  if (evidence.series !== null && evidence.series !== undefined) parts.push(`optimizer ${evidence.series}`);
  if (ranks > 1) parts.push(which(finding, ranks));
  return parts;
}

/** `rank 3`, `rank 3, then 2 more`, `ranks 0, 1 and 3`, `all 4 ranks`. */
function which({ id, rank, evidence = {} }, world) {
  const shared = Array.isArray(evidence.ranks) && evidence.ranks.length > 1 && !id.startsWith("rank-");
  if (!shared) return `rank ${rank}`;
  const count = evidence.rank_count ?? evidence.ranks.length;
  if (Number.isInteger(evidence.began_on)) {
    const [other] = evidence.ranks.filter((each) => each !== evidence.began_on);
    return `rank ${evidence.began_on}, then ${count === 2 ? `rank ${other}` : `${whole(count - 1)} more`}`;
  }
  if (count >= world) return `all ${whole(count)} ranks`;
  const shown = count > 8 ? [...evidence.ranks.slice(0, 7), `${whole(count - 7)} more`] : evidence.ranks;
  return `ranks ${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

/** `{show}` is called with a finding whose steps should be looked at. */
export function card(story, { ranks = 1, show, fresh = false }) {
  const { finding } = story;
  const evidence = Object.entries(finding.evidence ?? {}).filter(([name, value]) => !TOLD.has(name) && value !== null);
  const notes = ["first_bad", "note", "library", "capture_note"].filter((name) => finding.evidence?.[name]);
  const titles = { first_bad: "first bad", note: "note", library: "inside a library, at", capture_note: "note" };
  const where = place(finding, ranks);
  return h(
    "article",
    { class: `finding is-${finding.severity}${fresh ? " is-fresh" : ""}`, "data-finding": finding.id },
    h(
      "header",
      {},
      h("span", { class: `chip is-${finding.severity}` }, sign(finding.severity), finding.severity),
      h(
        "h3",
        {},
        h(
          "a",
          { href: `#/explain/${encodeURIComponent(finding.id)}`, title: "what this is, why it matters, what to try" },
          finding.id,
        ),
      ),
      h(
        "button",
        { type: "button", class: "quiet when", title: "zoom the charts to it", on: { click: () => show(finding) } },
        steps(finding),
      ),
    ),
    h("p", { class: "message" }, inline(finding.message)),
    where.length > 0 && h("p", { class: "place", title: finding.where?.file ?? null }, where.join(" · ")),
    code(finding),
    notes.map((name) => h("p", { class: "note" }, h("b", {}, `${titles[name]}: `), String(finding.evidence[name]))),
    finding.recommendations?.length > 0 &&
      h(
        "ul",
        { class: "advice", "aria-label": "What to do" },
        finding.recommendations.map((line) => h("li", {}, inline(line))),
      ),
    evidence.length > 0 &&
      h(
        "details",
        { class: "evidence" },
        h("summary", {}, "Evidence"),
        h(
          "dl",
          {},
          evidence.map(([name, value]) =>
            h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, plain(value))),
          ),
        ),
      ),
    why(finding),
    after(story).map((effect) =>
      h(
        "p",
        { class: "effect" },
        sign(effect.finding.severity),
        h("b", {}, `then ${effect.finding.id}`),
        " ",
        inline(effect.finding.message),
      ),
    ),
  );
}

function why({ page, id }) {
  if (!page?.why && !page?.title) return null;
  return h(
    "details",
    { class: "evidence" },
    h("summary", {}, "Why it matters"),
    page.title && h("p", {}, inline(page.title)),
    page.why && h("p", {}, inline(page.why.trim().split(/\n\n+/)[0].replace(/\s+/g, " "))),
    h("p", {}, h("a", { href: `#/explain/${encodeURIComponent(id)}` }, "The whole explanation")),
  );
}

/** The line, without its indent, with the op's columns marked. */
function code({ where, evidence }) {
  if (!where?.code) return null;
  const lines = String(where.code).replace(/\s+$/, "").split("\n");
  const indent = Math.min(...lines.filter((line) => line.trim()).map((line) => line.length - line.trimStart().length));
  const columns = Array.isArray(evidence?.columns) ? evidence.columns : null;
  return h(
    "pre",
    { class: "code", tabindex: 0, "aria-label": `line ${where.line ?? ""} of ${where.file ?? "the code"}` },
    lines.slice(0, 12).map((line, at) => {
      const text = line.slice(indent);
      const [from, to] = at === 0 && columns ? columns.map((column) => Math.max(0, column - indent)) : [0, 0];
      return h(
        "code",
        { class: at === 0 ? "is-line" : "" },
        h("span", { class: "line-number", "aria-hidden": "true" }, where.line ? String(where.line + at) : ""),
        h(
          "span",
          {},
          text.slice(0, from),
          to > from && h("mark", {}, text.slice(from, to)),
          text.slice(Math.max(from, to)),
        ),
      );
    }),
  );
}

/** The verdict in a line, for the head of a run. */
export function verdict(run, findings) {
  const soFar = run.state === "live" ? "so far" : "";
  const made = many(run.steps, "step");
  const worst = stories(findings)[0]?.finding;
  const found = worst && worst.severity !== "info" ? told(worst, stories(findings).length - 1) : "";
  if (run.status === "crashed") {
    const error = String(run.exit?.exception ?? "").split("\n")[0];
    return `Crashed after ${made}${error ? `: ${error}` : "."}${found ? ` ${found}` : ""}`;
  }
  if (run.state === "lost") return `Lost after ${made}: no sign of life, the process was probably killed. ${found}`;
  if (!worst || worst.severity === "info") {
    if (!run.steps) return run.state === "live" ? "No step yet." : "No step was seen.";
    const remarks = findings.length ? `, ${many(findings.length, "remark")}` : "";
    return `Nothing wrong ${soFar ? "so far, " : ""}after ${made}${remarks}.`;
  }
  return found;
}

function told({ id, step, where }, others) {
  const at = where?.file ? ` at ${brief(where.file)}${where.line ? `:${where.line}` : ""}` : "";
  return `${id} since step ${whole(step)}${at}${others > 0 ? `, and ${others} more` : ""}.`;
}
