// The documentation of the HTTP API, drawn from /openapi.json. Everything is put in as text.

const about = document.getElementById("about");
const list = document.getElementById("operations");
const find = document.getElementById("find");

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Text with `code` in it. */
function worded(text) {
  return text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

/** Paragraphs, as docstrings have them. */
function paragraphs(text) {
  return text.trim().split(/\n\s*\n/).map((part) => element("p", {}, ...worded(part.replace(/\s+/g, " "))));
}

/** The schema that a reference means. */
function resolved(schema, spec) {
  let found = schema;
  while (found?.$ref) found = found.$ref.slice(2).split("/").reduce((at, key) => at?.[key], spec);
  return found ?? {};
}

/** A type in a word or two. */
function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf) return schema.anyOf.filter((each) => !each.enum?.includes("NaN")).map(typeOf).join(" | ");
  if (schema.prefixItems) return `[${schema.prefixItems.map(typeOf).join(", ")}]`;
  if (schema.type === "array") return `${typeOf(schema.items ?? {})}[]`;
  if (schema.type === "object" && schema.additionalProperties?.type === undefined && schema.additionalProperties?.$ref)
    return `{name: ${typeOf(schema.additionalProperties)}}`;
  return schema.type ?? "any";
}

function limitsOf(schema) {
  const parts = [];
  const each = schema.anyOf?.find((one) => one.type !== "null") ?? schema;
  for (const [key, sign] of [["minimum", "≥"], ["maximum", "≤"], ["exclusiveMinimum", ">"], ["maxLength", "length ≤"], ["maxItems", "at most"], ["pattern", "like"]])
    if (each[key] !== undefined && !(key === "maximum" && each[key] >= 2 ** 31 - 1)) parts.push(`${sign} ${each[key]}`);
  if (schema.default !== undefined && schema.default !== null) parts.push(`default ${JSON.stringify(schema.default)}`);
  return parts.join(", ");
}

/** What an answer looks like, as far as it is fixed: JSON with types for values. */
function outline(schema, spec, depth = 0) {
  const found = resolved(schema, spec);
  if (found.properties && depth < 4)
    return Object.fromEntries(Object.entries(found.properties).map(([name, part]) => [name, outline(part, spec, depth + 1)]));
  if (found.type === "array" && found.items) return [outline(found.items, spec, depth + 1)];
  const own = found.anyOf?.find((part) => part.$ref || part.additionalProperties);
  if (own) return outline(own, spec, depth + 1);
  if (found.type === "object" && typeof found.additionalProperties === "object" && Object.keys(found.additionalProperties).length)
    return { name: outline(found.additionalProperties, spec, depth + 1) };
  return typeOf(found);
}

function table(head, rows) {
  if (!rows.length) return null;
  const cells = (tag, values) => element("tr", {}, ...values.map((value) => element(tag, {}, value ?? "")));
  const own = element("table", {}, element("thead", {}, cells("th", head)), element("tbody", {}, ...rows.map((row) => cells("td", row))));
  return element("div", { className: "wide" }, own);
}

/** A form that sends a GET and shows what comes back. */
function trial(path, parameters) {
  const fields = parameters.map((parameter) => {
    const input = element("input", { name: parameter.name, placeholder: parameter.schema?.default ?? "", required: parameter.in === "path", autocomplete: "off" });
    if (parameter.in === "path" && parameter.name === "run") input.value = "last";
    return [parameter, input];
  });
  const shown = element("pre", { hidden: true, tabIndex: 0 });
  const form = element("form", {}, element("div", { className: "fields" }, ...fields.map(([parameter, input]) => element("label", {}, parameter.name, input))), element("button", { type: "submit" }, "Try it"), shown);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let address = path;
    const query = new URLSearchParams();
    for (const [parameter, input] of fields) {
      if (parameter.in === "path") address = address.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (parameter.in === "query" && input.value)
        for (const value of parameter.schema?.type === "array" ? input.value.split(",") : [input.value]) query.append(parameter.name, value.trim());
    }
    const whole = query.size ? `${address}?${query}` : address;
    shown.hidden = false;
    shown.textContent = `GET ${whole}\n`;
    try {
      const began = performance.now();
      const answer = await fetch(whole);
      const text = await answer.text();
      const took = Math.round(performance.now() - began);
      let body = text;
      try {
        body = JSON.stringify(JSON.parse(text), null, 1);
      } catch {
        // no JSON: as it is
      }
      shown.textContent = `GET ${whole}\n${answer.status} ${answer.statusText}, ${text.length} characters, ${took} ms\n\n${body.slice(0, 20_000)}`;
    } catch {
      shown.textContent += "the server does not answer";
    }
  });
  return form;
}

function operation(path, method, told, spec) {
  const parameters = told.parameters ?? [];
  const body = told.requestBody?.content?.["application/json"]?.schema;
  const rows = parameters.map((each) => [each.name, each.in, typeOf(each.schema ?? {}), limitsOf(each.schema ?? {}), element("span", {}, ...worded(each.description ?? ""))]);
  const answers = Object.entries(told.responses ?? {});
  const good = answers.find(([status]) => status.startsWith("2"));
  const schema = good?.[1].content?.["application/json"]?.schema;
  const streams = good?.[1].content?.["text/event-stream"];
  return element(
    "details",
    { id: told.operationId },
    element("summary", {}, element("span", { className: `method ${method}` }, method.toUpperCase()), element("code", {}, path), element("span", {}, told.summary ?? "")),
    element(
      "div",
      { className: "inside" },
      ...paragraphs(told.description ?? ""),
      table(["Parameter", "In", "Type", "Limits", ""], rows),
      body ? element("h3", {}, "Body") : null,
      body ? element("pre", { tabIndex: 0 }, JSON.stringify(outline(body, spec), null, 2)) : null,
      element("h3", {}, "Answers"),
      element("dl", { className: "codes" }, ...answers.flatMap(([status, answer]) => [element("dt", {}, status), element("dd", {}, answer.description ?? "")])),
      schema ? element("pre", { tabIndex: 0 }, JSON.stringify(outline(schema, spec), null, 2)) : null,
      method === "get" && !streams ? trial(path, parameters) : null,
    ),
  );
}

function draw(spec) {
  document.getElementById("version").textContent = `${spec.info.version}, API 1`;
  about.replaceChildren(...paragraphs(spec.info.description));
  const groups = new Map();
  for (const [path, methods] of Object.entries(spec.paths))
    for (const [method, told] of Object.entries(methods)) {
      const tag = told.tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operation(path, method, told, spec));
    }
  list.replaceChildren(
    ...[...groups].map(([tag, own]) => element("section", {}, element("h2", {}, tag), ...own)),
  );
}

function filter() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of list.children) {
    let any = false;
    for (const each of section.querySelectorAll("details")) {
      const text = each.querySelector("summary").textContent.toLowerCase();
      each.hidden = !words.every((word) => text.includes(word));
      any ||= !each.hidden;
    }
    section.hidden = !any;
  }
}

find.addEventListener("input", filter);

try {
  const answer = await fetch("/openapi.json");
  if (answer.status === 401) throw new Error("the server wants its token: open the address that seismograd ui printed");
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  draw(await answer.json());
  if (location.hash) document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
} catch (error) {
  about.textContent = `The documentation cannot be shown: ${error.message}`;
}
