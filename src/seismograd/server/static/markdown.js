// The little Markdown that explanations and messages are written in, as elements: no HTML ever passes through.

import { h } from "./dom.js";

/** `code` and **bold** in a line of text. */
export function inline(text) {
  return String(text)
    .split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)
    .filter(Boolean)
    .map((part) => {
      if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) return h("code", {}, part.slice(1, -1));
      if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) return h("b", {}, part.slice(2, -2));
      return document.createTextNode(part);
    });
}

/** Headings, paragraphs, lists, quotes and code. */
export function blocks(text) {
  const made = [];
  const lines = String(text).replaceAll("\r", "").split("\n");
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    if (!line.trim()) {
      at += 1;
    } else if (line.startsWith("```")) {
      const end = lines.findIndex((other, place) => place > at && other.startsWith("```"));
      const stop = end < 0 ? lines.length : end;
      made.push(h("pre", { class: "code" }, h("code", {}, lines.slice(at + 1, stop).join("\n"))));
      at = stop + 1;
    } else if (/^#{1,4} /.test(line)) {
      const depth = line.indexOf(" ");
      made.push(h(`h${Math.min(4, depth + 1)}`, {}, inline(line.slice(depth + 1))));
      at += 1;
    } else if (/^(    |\t)/.test(line)) {
      const taken = taking(lines, at, (each) => /^(    |\t)/.test(each) || !each.trim());
      made.push(
        h(
          "pre",
          { class: "code" },
          h(
            "code",
            {},
            taken
              .map((each) => each.slice(4))
              .join("\n")
              .trimEnd(),
          ),
        ),
      );
      at += taken.length;
    } else if (/^([-*]|\d+\.) /.test(line)) {
      const taken = taking(
        lines,
        at,
        (each, place) => place === at || (each.trim() && (/^([-*]|\d+\.) /.test(each) || /^\s/.test(each))),
      );
      const items = [];
      for (const each of taken) {
        if (/^([-*]|\d+\.) /.test(each)) items.push(each.replace(/^([-*]|\d+\.) /, ""));
        else items[items.length - 1] += ` ${each.trim()}`;
      }
      made.push(
        h(
          /^\d/.test(line) ? "ol" : "ul",
          {},
          items.map((item) => h("li", {}, inline(item))),
        ),
      );
      at += taken.length;
    } else {
      const taken = taking(lines, at, (each) => each.trim() && !/^(#{1,4} |```)/.test(each));
      made.push(h("p", {}, inline(taken.map((each) => each.trim()).join(" "))));
      at += taken.length;
    }
  }
  return made;
}

function taking(lines, from, holds) {
  let to = from;
  while (to < lines.length && (to === from || holds(lines[to], to))) to += 1;
  return lines.slice(from, to);
}
