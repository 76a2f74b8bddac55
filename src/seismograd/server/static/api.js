// The way to the server: JSON calls, the live stream, and what to do when it is gone or wants a token.

/** The server answered with an error; `message` and `hint` are its own words. */
export class Refused extends Error {
  constructor(status, error = {}) {
    super(error.message || `the server answered ${status}`);
    this.status = status;
    this.code = error.code;
    this.hint = error.hint;
  }
}

/** The server did not answer at all. */
export class Gone extends Error {
  constructor() {
    super("The server does not answer.");
  }
}

/** "gone" and "back" happen here. */
export const connection = new EventTarget();
let gone = false;
let waiting = null; // ends the pause before the next try

/** Asks for the token and resolves when there may be a valid one; main.js sets it. */
export const door = { ask: null };
let asking = null;

export function isGone() {
  return gone;
}

/** Tries at once instead of waiting. */
export function retry() {
  waiting?.();
}

function lost() {
  if (gone) return;
  gone = true;
  connection.dispatchEvent(new CustomEvent("gone", { detail: { wait: 1 } }));
  knock();
}

async function knock() {
  for (let wait = 1; gone; wait = Math.min(wait * 2, 15)) {
    connection.dispatchEvent(new CustomEvent("gone", { detail: { wait } }));
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, wait * 1000);
      waiting = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    try {
      const answer = await fetch("/api", { cache: "no-store" });
      if (answer.status < 500) gone = false;
    } catch {
      // still gone
    }
  }
  connection.dispatchEvent(new Event("back"));
}

/** Resolves when the server answers again. */
export function back(signal) {
  if (!gone) return Promise.resolve();
  return new Promise((resolve, reject) => {
    connection.addEventListener("back", resolve, { once: true, signal });
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

async function knownAnswer(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    lost();
    throw new Gone();
  }
  if (answer.status === 401 && door.ask) {
    asking ??= door.ask().finally(() => {
      asking = null;
    });
    await asking;
    return knownAnswer(path, options);
  }
  if (!answer.ok) throw new Refused(answer.status, (await answer.json().catch(() => ({}))).error);
  return answer;
}

/** JSON from the server. */
export async function get(path, query = {}, signal = undefined) {
  const answer = await knownAnswer(withQuery(path, query), { signal });
  return answer.json();
}

/** A call that changes something. */
export async function send(method, path, body = undefined) {
  const answer = await knownAnswer(path, {
    method,
    headers: { "Content-Type": "application/json", "X-Seismograd": "1" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return answer.status === 204 ? null : answer.json();
}

/** Trades the token for a cookie; false if it is not the right one. */
export async function login(token) {
  const answer = await fetch(withQuery("/api", { token }), { cache: "no-store" });
  return answer.ok;
}

function withQuery(path, query) {
  const pairs = [];
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one === null || one === undefined || one === "") continue;
      pairs.push(`${encodeURIComponent(name)}=${encodeURIComponent(one)}`);
    }
  }
  return pairs.length ? `${path}?${pairs.join("&")}` : path;
}

export function runPath(id, ...rest) {
  return ["/api/runs", encodeURIComponent(id), ...rest.map(encodeURIComponent)].join("/");
}

const SILENCE = 25_000; // the server speaks at least every ten seconds

/** The server-sent events of a path, until the stream ends: `{event, data}`. A silent stream counts as ended. */
export async function* events(path, query, signal) {
  const own = new AbortController();
  const stop = () => own.abort(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  let timer = 0;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => own.abort(), SILENCE);
  };
  try {
    heard();
    const answer = await knownAnswer(withQuery(path, query), {
      signal: own.signal,
      headers: { Accept: "text/event-stream" },
    });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      const parts = (text + value.replaceAll("\r", "")).split("\n\n");
      text = parts.pop();
      for (const part of parts) {
        const message = parsed(part);
        if (message) yield message;
      }
    }
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    if (error instanceof Refused) throw error;
    // cut off in the middle: the caller asks again, and learns then whether the server is gone
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
    own.abort();
  }
}

function parsed(part) {
  let event = "message";
  const data = [];
  for (const line of part.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return data.length ? { event, data: JSON.parse(data.join("\n")) } : null;
}

/** Resolves after some milliseconds, or rejects when the signal says so. */
export function pause(time, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, time);
    signal?.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}
