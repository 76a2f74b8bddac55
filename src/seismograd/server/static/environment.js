// Where and how the run was started, what was kept of it, and what can be taken along.

import { runPath, send } from "./api.js";
import { failed, h, put } from "./dom.js";
import { bytes, dated, moment, percent, plain, whole } from "./format.js";

export function mountEnvironment(panel, context) {
  const notice = h("div", {});

  function draw() {
    const { run } = context;
    const about = run.about ?? {};
    const facts = (pairs) =>
      h(
        "dl",
        { class: "rows" },
        pairs
          .filter(([, value]) => value !== null && value !== undefined && value !== "")
          .map(([name, value]) =>
            h("div", {}, h("dt", {}, name), h("dd", {}, typeof value === "object" ? plain(value) : String(value))),
          ),
      );
    const box = (title, ...children) =>
      h("section", { class: "panel" }, h("header", { class: "panel-head" }, h("h3", {}, title)), ...children);
    const { command, ...rest } = about;
    put(
      panel,
      h(
        "div",
        { class: "charts two boxes" },
        box(
          "Process",
          command && h("pre", { class: "code", tabindex: 0 }, h("code", {}, String(command))),
          facts(Object.entries(rest).map(([name, value]) => [name.replaceAll("_", " "), value])),
        ),
        box(
          "Record",
          facts([
            ["id", run.id],
            ["started", dated(moment(run.started))],
            ["ended", run.ended ? dated(moment(run.ended)) : null],
            ["state", run.state],
            ["exit code", run.exit?.code],
            ["exception", run.exit?.exception],
            ["level", run.level],
            ["budget", run.budget === null ? null : percent(run.budget)],
            ["overhead", run.overhead === null ? null : percent(run.overhead)],
            ["steps", whole(run.steps)],
            ["at full rate", (run.whole ?? []).map(([start, stop]) => `${whole(start)} to ${whole(stop)}`).join(", ")],
            ["on disk", run.bytes ? bytes(run.bytes) : null],
            ["store", context.server.store],
          ]),
        ),
        box(
          "Summary",
          facts(
            Object.entries(run.summary ?? {}).map(([name, value]) => [
              name.replaceAll("_", " "),
              name.endsWith("_rate") ? percent(value) : typeof value === "object" && value ? plain(value) : value,
            ]),
          ),
        ),
        box(
          "Captures",
          run.captures?.length
            ? h(
                "ul",
                { class: "captures" },
                run.captures.map((kept) =>
                  h(
                    "li",
                    {},
                    h("b", {}, `step ${whole(kept.step)}`),
                    " ",
                    kept.finding,
                    h("code", { class: "command" }, `seismograd replay ${run.id} --model FILE.py:CLASS`),
                    h("span", { class: "muted" }, kept.path),
                  ),
                ),
              )
            : h("p", { class: "muted" }, "No step was captured."),
        ),
        box(
          "Take it along",
          h(
            "ul",
            { class: "links" },
            h(
              "li",
              {},
              h("a", { href: runPath(run.id, "page"), download: `${run.id}.html` }, "Report page"),
              h("span", { class: "muted" }, " one HTML file to mail or print"),
            ),
            h("li", {}, h("a", { href: runPath(run.id, "report"), download: `${run.id}.json` }, "Report as JSON")),
          ),
          !context.server.read_only && run.state !== "live" && deletion(),
        ),
      ),
      notice,
    );
  }

  function deletion() {
    const sure = h(
      "dialog",
      { class: "sheet", "aria-labelledby": "delete-title" },
      h("h2", { id: "delete-title" }, "Delete this run?"),
      h("p", {}, "Its record is removed from the store. This cannot be undone."),
      h(
        "div",
        { class: "sheet-buttons" },
        h("button", { type: "button", on: { click: () => sure.close() } }, "Keep it"),
        h("button", { type: "button", class: "danger is-solid", on: { click: remove } }, "Delete it"),
      ),
    );
    async function remove() {
      sure.close();
      try {
        await send("DELETE", runPath(context.id));
        context.go("#/");
      } catch (error) {
        put(notice, failed(error));
      }
    }
    return h(
      "p",
      {},
      h("button", { type: "button", class: "danger", on: { click: () => sure.showModal() } }, "Delete this run…"),
      sure,
    );
  }

  draw();
  return { reload: draw, found: draw };
}
