// The page: which view is shown, the keys, the banner when the server is gone, the token.

import { connection, door, get, Gone, login, retry } from "./api.js";
import { failed, h, put, say } from "./dom.js";
import { mountExplain } from "./explain.js";
import { mountList } from "./list.js";
import { mountRun } from "./run.js";

const root = document.getElementById("view");
const banner = document.getElementById("banner");
const keysDialog = document.getElementById("keys");
const tokenDialog = document.getElementById("token");
let server = null;
let view = null;
let shown = "";

/** `#/run/ID?tab=layers` as its path and its query. */
function route() {
  const [path, text = ""] = window.location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts, query: Object.fromEntries(new URLSearchParams(text)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Writes into the address what the view shows, so that it can be sent to somebody; no new entry in the history. */
function setQuery(change) {
  const { query } = route();
  Object.assign(query, change);
  const pairs = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const path = window.location.hash.replace(/^#/, "").split("?")[0] || "/";
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  window.history.replaceState(null, "", `#${path}${text ? `?${text}` : ""}`);
}

function go(hash) {
  window.location.hash = hash;
}

function navigate() {
  const { parts, query } = route();
  const [kind = "", id = ""] = parts;
  view?.leave?.();
  const context = { id, query, setQuery, server, go };
  if (kind === "run" && id) view = mountRun(root, context);
  else if (kind === "explain") view = mountExplain(root, context);
  else view = mountList(root, context);
  const next = `${kind}/${id}`;
  if (next !== shown && shown !== "") root.querySelector("h1")?.focus({ preventScroll: true });
  if (next !== shown) window.scrollTo(0, 0);
  shown = next;
}

function isTyping(target) {
  return target.closest("input, textarea, select, [contenteditable]") !== null;
}

document.addEventListener("keydown", (event) => {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.defaultPrevented ||
    document.querySelector("dialog[open]")
  )
    return;
  const typing = isTyping(event.target);
  if (event.key === "?" && !typing) {
    keysDialog.showModal();
    return;
  }
  if (typing && event.key === "Escape") {
    if (event.target.type === "search" && event.target.value) {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
    } else {
      event.target.blur();
    }
    return;
  }
  if (typing && !["Enter", "ArrowDown"].includes(event.key)) return;
  view?.keys?.(event);
});

keysDialog.querySelector("button").addEventListener("click", () => keysDialog.close());
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is the view's
  root.focus();
});
document.getElementById("show-keys").addEventListener("click", () => keysDialog.showModal());

// -- the server is gone -----------------------------------------------------------------------------------------------

let counting = 0;
connection.addEventListener("gone", ({ detail }) => {
  let left = detail.wait;
  const text = h("span", {});
  put(banner, text, h("button", { type: "button", on: { click: retry } }, "Try now"));
  banner.hidden = false;
  clearInterval(counting);
  const tell = () => say(text, `The server does not answer. ${left > 0 ? `Trying again in ${left} s.` : "Trying…"}`);
  tell();
  counting = setInterval(() => {
    left -= 1;
    tell();
  }, 1000);
});
connection.addEventListener("back", () => {
  clearInterval(counting);
  banner.hidden = true;
  put(banner);
});

// -- the token --------------------------------------------------------------------------------------------------------

door.ask = () =>
  new Promise((resolve) => {
    const form = tokenDialog.querySelector("form");
    const input = tokenDialog.querySelector("input");
    const wrong = tokenDialog.querySelector(".wrong");
    say(wrong, "");
    form.onsubmit = async (event) => {
      event.preventDefault();
      try {
        if (await login(input.value.trim())) {
          input.value = "";
          tokenDialog.close();
          resolve();
          return;
        }
        say(wrong, "That is not the token. It was printed when seismograd ui started.");
      } catch {
        say(wrong, "The server does not answer.");
      }
      input.select();
    };
    tokenDialog.oncancel = (event) => event.preventDefault();
    if (!tokenDialog.open) tokenDialog.showModal();
    input.focus();
  });

async function begin() {
  try {
    server = await get("/api");
    say(document.getElementById("store"), server.store ?? "");
    document.getElementById("store").title = `seismograd ${server.version}, ${server.store}`;
    document.getElementById("read-only").hidden = !server.read_only;
    window.addEventListener("hashchange", navigate);
    navigate();
  } catch (error) {
    if (error instanceof Gone) connection.addEventListener("back", begin, { once: true });
    else put(root, failed(error, begin));
  }
}

begin();
