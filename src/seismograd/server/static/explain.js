// The page of a kind of finding: what it is, why it matters, how it is judged, what to try.

import { get, Gone } from "./api.js";
import { failed, h, put } from "./dom.js";
import { inline, blocks } from "./markdown.js";

export function mountExplain(root, { id, go }) {
  let left = false;
  const place = h("div", { class: "prose" });
  put(
    root,
    h(
      "nav",
      { class: "crumbs", "aria-label": "Where you are" },
      h("a", { href: "#/" }, "Runs"),
      " / ",
      id ? h("a", { href: "#/explain" }, "Findings") : "Findings",
    ),
    place,
  );

  async function load() {
    try {
      const answer = await get(id ? `/api/explain/${encodeURIComponent(id)}` : "/api/explain");
      if (left) return;
      document.title = `${id || "Findings"} · Seismograd`;
      if (id) {
        const body = answer.markdown.replace(/^# .*\n+/, "");
        put(place, h("h1", { tabindex: -1 }, answer.id), blocks(body));
      } else {
        put(
          place,
          h("h1", { tabindex: -1 }, "What can be found"),
          h(
            "ul",
            { class: "catalogue" },
            answer.findings.map((page) =>
              h(
                "li",
                {},
                h("a", { href: `#/explain/${encodeURIComponent(page.id)}` }, page.id),
                h("span", {}, inline(page.title)),
              ),
            ),
          ),
        );
      }
      place.querySelector("h1").focus({ preventScroll: true });
    } catch (error) {
      if (!left && !(error instanceof Gone)) put(place, failed(error, load));
    }
  }

  load();
  return {
    keys(event) {
      if (event.key !== "Escape") return;
      if (window.history.length > 1) window.history.back();
      else go("#/");
    },
    leave() {
      left = true;
    },
  };
}
