// Numbers, times and places as a person reads them.

/** The number that strict JSON carries: "NaN", "Infinity" and "-Infinity" are numbers too; null is NaN. */
export function real(value) {
  return typeof value === "number" ? value : value === null || value === undefined ? NaN : Number(value);
}

export function number(value, digits = 4) {
  if (typeof value === "string" && /^-?(NaN|Infinity)$/.test(value)) value = Number(value);
  if (typeof value !== "number") return String(value);
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Inf" : "-Inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return size < 1e4 ? String(value) : value.toLocaleString("en");
  if (size >= 1e6 || size < 1e-3)
    return value
      .toExponential(digits - 2)
      .replace(/\.?0+e/, "e")
      .replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

export function whole(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en") : "–";
}

export function many(count, word, words = `${word}s`) {
  return `${whole(count)} ${count === 1 ? word : words}`;
}

export function percent(value) {
  const share = real(value);
  return Number.isFinite(share) ? `${Number((share * 100).toPrecision(2))} %` : "–";
}

/** As in the reports, 1 kB is 1,024 bytes. */
export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at && Math.abs(value) < 100 ? Number(value.toPrecision(3)) : Math.round(value)} ${units[at]}`;
}

export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size < 1e-3) return `${number(value * 1e6, 3)} µs`;
  if (size < 1) return `${number(value * 1e3, 3)} ms`;
  if (size < 60) return `${number(value, 3)} s`;
  return duration(value);
}

/** `42 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`. */
export function duration(value) {
  if (!Number.isFinite(value) || value < 0) return "–";
  const all = Math.round(value);
  if (all < 60) return `${all} s`;
  if (all < 3600) return `${Math.floor(all / 60)} min ${String(all % 60).padStart(2, "0")} s`;
  if (all < 86400) return `${Math.floor(all / 3600)} h ${String(Math.floor((all % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(all / 86400)} d ${Math.floor((all % 86400) / 3600)} h`;
}

/** A value in its unit: seconds, bytes, or none. */
export function valued(value, unit = null) {
  if (!Number.isFinite(value)) return number(value);
  return unit === "seconds" ? seconds(value) : unit === "bytes" ? bytes(value) : number(value);
}

/** The moment that a run's timestamp names: ISO text or unix seconds. */
export function moment(value) {
  if (value === null || value === undefined || value === "") return null;
  const date = new Date(typeof value === "number" ? value * 1000 : value);
  return Number.isNaN(date.getTime()) ? null : date;
}

export function ago(date, now = Date.now()) {
  if (!date) return "–";
  const past = (now - date.getTime()) / 1000;
  if (past < 5) return "just now";
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  if (past < 7 * 86400) return `${Math.floor(past / 86400)} d ago`;
  return date.toLocaleDateString("en-CA");
}

const two = (value) => String(value).padStart(2, "0");

export function clock(date) {
  return date ? `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}` : "–";
}

export function dated(date) {
  if (!date) return "–";
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(date)}`;
}

/** Evidence and settings in one line: lists and mappings in brief. */
export function plain(value, depth = 0) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return typeof value === "number" ? number(value) : String(value);
  const few = (items) => items.slice(0, 4).join(", ") + (items.length > 4 ? `, and ${items.length - 4} more` : "");
  if (Array.isArray(value) && !value.length) return "none";
  if (Array.isArray(value)) return depth > 2 ? "[…]" : `[${few(value.map((item) => plain(item, depth + 1)))}]`;
  return depth > 2 ? "{…}" : few(Object.entries(value).map(([key, item]) => `${key} ${plain(item, depth + 1)}`));
}

/** Characters that would turn the text around them are spelled out: a name cannot pretend to be another. */
export function spelled(text) {
  return String(text).replace(/[\u202a-\u202e\u2066-\u2069]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16)}`);
}

/** Text for plotly, which reads a subset of HTML in labels, and %{...} in hover templates. */
export function label(text, longest = 60) {
  const all = spelled(text).replace(/\s+/g, " ");
  const short = all.length > longest ? `…${all.slice(1 - longest)}` : all;
  return short.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "%&#123;");
}

/** A layer's name in little room: its longest parts lose their ends, what is short stays whole. */
export function shortened(name, longest) {
  const parts = String(name).split(".");
  let short = String(name);
  for (let most = Math.max(...parts.map((part) => part.length)); short.length > longest && most > 2; most -= 1)
    short = parts.map((part) => (part.length > most ? `${part.slice(0, most - 1)}…` : part)).join(".");
  return short;
}

/** A file by its last two parts, for a line that has little room. */
export function brief(path) {
  const parts = String(path).split(/[\\/]/);
  return parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : String(path);
}
