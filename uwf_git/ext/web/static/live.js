// Keeps a page up to date without moving what is being read. Links and forms of the site change the page by morphing,
// and while the page is visible it asks for itself again. What takes its place is changed at once. What would push or
// remove something that is in view is held back, and announced at the edge.

import { content, element, OWN } from "./dom.js";
import { forget, giveBack, placesOf } from "./drafts.js";
import { FIELDS, identify, isDirty } from "./fields.js";
import htmx from "./htmx/htmx.js";
import { accept, isStale, leave as leaving } from "./keys.js";
import { anchored, hold, ROW } from "./reading.js";
import { count, listen, silence } from "./stream.js";
import { refresh } from "./times.js";

const SOON = 2000, LATER = 5000, REST = 30000; // milliseconds between two requests
const AWAY = 60000; // milliseconds after which a reader who does nothing may be away
const SWAP = "page strip:false";

let morph;
let tag = document.body.dataset.tag;
let pause = SOON;
let timer = 0;
let visits = 0; // pages that were shown
let shown = location.href;

// Finished steps, for screen readers.
const spoken = element("p", { class: "visually-hidden", "aria-live": "polite" });
const edge = element("button", { class: "news", type: "button", hidden: "" });
edge.addEventListener("click", show);
// Why nothing new can come.
const lost = element("p", { class: "lost", role: "status" });
document.body.append(element("div", { id: "live", "data-live-own": "" }, spoken, lost, edge));

const tell = (text) => { spoken.textContent = text; };

// Asking for the page again

async function look() {
  clearTimeout(timer);
  if (document.hidden || !tag) return;
  const visit = visits;
  const answer = await current({ "If-None-Match": tag });
  if (visit !== visits) return; // another page is shown meanwhile
  const most = Math.max(LATER, Math.min(REST, (Date.now() - active) / 6)); // 10 seconds after a minute, 30 after three
  pause = answer.status === 200 ? SOON : Math.min(most, pause * 1.25);
  if (answer.status === 200) {
    tag = answer.tag ?? tag;
    await take(answer.page);
  }
  missing(answer.status);
  again();
}

let active = Date.now();
for (const kind of ["pointermove", "pointerdown", "keydown", "wheel", "touchstart"])
  addEventListener(kind, () => {
    const was = active;
    active = Date.now();
    if (active - was > AWAY) look();
  }, { passive: true, capture: true });

function again() {
  clearTimeout(timer);
  if (tag) timer = setTimeout(look, pause);
}

// A page of the server: its status, 0 without a server, its tag, and the parsed page.
async function request(address, headers = {}) {
  try {
    const answer = await fetch(address, { headers, cache: "no-store", signal: AbortSignal.timeout(20000) });
    const page = answer.status === 200 ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
    return { status: answer.status, tag: answer.headers.get("etag"), page };
  } catch {
    return { status: 0 };
  }
}

// What is shown, as it is now: of a list whose first row is shown beside it, the row that was the first stays.
async function current(headers) {
  const answer = await request(location.pathname + location.search, headers);
  const [now, next] = [document, answer.page].map((page) => page?.querySelector("#content article[data-row]"));
  const row = now && next && now.dataset.row !== next.dataset.row && answer.page.getElementById(now.dataset.row);
  const { page } = row && row.dataset.group === now.dataset.group ? await request(row.querySelector("a").getAttribute("href")) : {};
  if (!page) return answer;
  page.querySelector(".inbox").className = next.parentNode.className;
  return { ...answer, page };
}

// Says why nothing new can come, with the time of the last answer.
let heard = new Date();
function missing(status) {
  const before = lost.textContent;
  const since = () => heard.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  lost.textContent = {
    0: `No connection since ${since()}: is uwf web still running?`,
    200: "",
    304: "",
    401: document.querySelector(".bar .person")
      ? "You are signed out: ask for a new link." : "uwf web was started anew: open the address that it printed.",
    404: document.querySelector("[data-thread]") ? "This thread was removed." : "This page is no longer there.",
  }[status] ?? `Nothing new since ${since()}: uwf web cannot show this page (${status}).`;
  if (!lost.textContent) heard = new Date();
  if (before && !lost.textContent) listening();
  if (lost.textContent) silence();
}

// Changing the page

// Shows what a page says now, but for what would move something that is in view.
async function take(page) {
  const now = page.getElementById("content");
  if (!now) return;
  const away = new Set();
  identify(document.body);
  identify(page.body);
  const places = new Map([...now.querySelectorAll("[data-place]")].map((node) => [node.dataset.place, node]));
  const held = { fresh: [], away, changed: false, status: status(page), sentence: sentence(page), places };
  hold(content(), now, held);
  const added = grow(page);
  const steps = added.filter((node) => node.id.startsWith("step-")).length;
  if (steps && !listening()) tell(counted(steps, "new step"));
  highlight();
  announce(held);
  if (edge.hidden && isStale()) stale();
  await follow([...away]);
  settle();
}

// What keys would press has changed since the reader was shown it.
function stale() {
  edge.textContent = "What can be done has changed — show";
  edge.hidden = false;
}
document.addEventListener("keys:stale", stale);

// Of a list whose row is shown beside it, only that row is marked.
function highlight() {
  const item = document.querySelector("#content article[data-row]");
  for (const link of item ? document.querySelectorAll("#content [data-rows=open] a[aria-current]") : [])
    if (link.closest("li").id !== item.dataset.row) link.removeAttribute("aria-current");
}

// Says at the edge what is held back.
function announce(held) {
  edge.hidden = !held.changed;
  if (!held.changed) {
    announced = status(document);
    return;
  }
  const { fresh } = held, noun = { "t": "thread", "s": "step" }[fresh[0]?.[0]] ?? "row";
  const parts = fresh.length ? [counted(fresh.length, `new ${noun}`)] : [];
  if (held.status && held.status !== announced) parts.push(held.sentence);
  const text = parts.join(", ") || "This page has changed";
  const words = `${text[0].toUpperCase()}${text.slice(1)} — show`;
  if (fresh.length && noun === "step" && edge.textContent !== words && !listening()) tell(parts[0]);
  edge.textContent = words;
}

const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const sentence = (page) => page.querySelector("[data-status]")?.dataset.sentence ?? "";
const status = (page) => page.querySelector("[data-status]")?.dataset.status;
let announced = status(document);

// Shows all of the newest page, in the place where the reader was.
async function show() {
  const visit = visits;
  const { page } = await current();
  if (!page || visit !== visits) return;
  const hadFocus = document.activeElement === edge;
  identify(document.body);
  identify(page.body);
  const added = grow(page);
  tag = document.body.dataset.tag;
  announce({ changed: false });
  accept();
  added[0]?.scrollIntoView({ block: "nearest" });
  if (hadFocus) (added[0]?.querySelector("a") ?? content()).focus({ preventScroll: true });
  settle();
}

// Applies a page around what is read, marks the rows that it adds, and returns these.
function grow(page) {
  const ids = () => [...content().querySelectorAll(ROW)];
  const known = new Set(ids().map((row) => row.id));
  const rows = page.querySelector("#content [data-rows]");
  for (const row of content().querySelectorAll("[data-rows] > [data-live-kept]")) if (!page.getElementById(row.id)) rows?.append(row.cloneNode(true));
  anchored(() => apply(page));
  const added = ids().filter((row) => !known.has(row.id));
  if (added.length) for (const row of document.querySelectorAll(".fresh")) row.classList.remove("fresh");
  for (const row of added) row.classList.add("fresh");
  return added;
}

// Makes the document say what a page says. What was opened and typed stays.
function apply(page) {
  const body = document.createDocumentFragment();
  for (const own of document.querySelectorAll(`body > ${OWN}`)) page.body.append(element(own.tagName, { id: own.id, "data-live-own": "" }));
  body.append(...page.body.childNodes);
  giveBack(() => morph(document.body, body, true));
  document.body.dataset.tag = page.body.dataset.tag ?? "";
  if (page.title) document.title = page.title;
  htmx.process(document.body);
}

// Rows that have left the list which is shown say where they are now all the same.
async function follow(rows) {
  if (!rows.length) return;
  const query = rows.slice(0, 50).map((row) => `&thread=${encodeURIComponent(row.id.slice(2))}`).join("");
  const { page } = await request(`/threads?tab=all${query}`);
  for (const row of page ? rows : []) {
    const now = page.getElementById(row.id);
    if (now?.tagName !== row.tagName || !row.isConnected) continue;
    const fragment = document.createDocumentFragment();
    fragment.append(...now.childNodes);
    morph(row, fragment, true);
  }
}

// Links and forms of the site

htmx.registerExtension("uwf", {
  init(api) {
    ({ morph } = api);
  },
  handle_swap(style, _target, fragment, spec) {
    if (style !== "page") return false;
    visit(fragment.firstElementChild, spec);
    return [document.body];
  },
  htmx_config_request(_node, { ctx }) {
    if (ctx.request.headers["HX-History-Restore-Request"]) ctx.swap = SWAP;
  },
  htmx_before_swap(_node, { ctx }) {
    source = ctx.sourceElement;
    if (submitted && ctx.response.status < 400) {
      forget(submitted.places);
      submitted.form.reset();
      submitted.form.closest("details.menu")?.removeAttribute("open");
    }
    submitted = null;
  },
  // A script that owns an element is told what the page says of it now.
  htmx_before_morph_node(node, { newNode }) {
    if (!node.matches?.(OWN)) return true;
    node.dispatchEvent(new CustomEvent("live:page", { detail: newNode }));
    return false;
  },
  htmx_before_morph_attr(node, { attrName }) {
    if (attrName === "open" && /^(DETAILS|DIALOG)$/.test(node.tagName)) return false;
    if (attrName === "class" && node.matches(".fresh")) return false;
    return attrName !== "value" || !node.matches(FIELDS) || !isDirty(node);
  },
});
Object.assign(htmx.config, { includeIndicatorCSS: false, morphIgnore: ["data-htmx-powered", "data-live-typed"] });
document.body.setAttribute("data-hx-boost:inherited", `swap:"${SWAP}"`);
document.body.setAttribute("data-hx-sync:inherited", "body:replace");
document.documentElement.style.overflowAnchor = "none"; // the middle is anchored here

// What is shown where: pages of one thread are one place, in which the reader stays where he is.
const placeOf = (address) => /^\/thread\/[^/]+|^.*/.exec(new URL(address).pathname)[0];
let source = null; // what asked for the next page
let submitted = null; // the form whose answer is awaited, and the places of what it sent
let pending = null; // the newest request for another page

function visit(body, spec) {
  visits += 1;
  const same = placeOf(shown) === placeOf(location.href);
  const page = new DOMParser().parseFromString("", "text/html");
  page.body.replaceWith(page.adoptNode(body));
  edge.hidden = true;
  if (same) {
    spec.show = "none";
    for (const node of content().querySelectorAll("[data-live-kept]")) delete node.dataset.liveOwn;
    identify(document.body);
    identify(page.body);
    const top = source?.getBoundingClientRect().top;
    apply(page);
    if (!source?.isConnected || !source.checkVisibility()) scrollTo({ top: 0, behavior: "instant" });
    else scrollBy({ top: source.getBoundingClientRect().top - top, behavior: "instant" });
    if (document.activeElement === document.body) content().focus({ preventScroll: true });
  } else {
    silence();
    const old = content();
    old.replaceWith(element("main", { id: "content", tabindex: "-1" }));
    identify(page.body);
    apply(page);
    content().focus({ preventScroll: true });
  }
  // What was refused is said where it is seen.
  if (source?.matches("form")) content().querySelector("[role=alert]")?.scrollIntoView({ block: "nearest", behavior: "instant" });
  shown = location.href;
  accept();
  tag = document.body.dataset.tag;
  announced = status(document);
  pause = SOON;
  missing(200);
  again();
  settle();
}

addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  if (ctx.request.method === "GET") {
    leaving();
    pending = ctx;
    if (ctx.sourceElement.matches("form")) forget(placesOf(ctx.sourceElement));
    return;
  }
  const form = ctx.sourceElement;
  submitted = { form, places: placesOf(form) };
  if (form.dataset.busy) event.preventDefault(); // a second click
  form.dataset.busy = "1";
});
addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
  delete ctx.sourceElement.dataset.busy;
  if (ctx === pending) leaving(false);
});
addEventListener("htmx:before:response", (event) => {
  const { raw, status: code } = event.detail.ctx.response;
  if (raw.headers.get("content-type")?.startsWith("text/html")) return;
  event.preventDefault(); // it isn't a page: the browser shows it itself
  if (code >= 400) missing(code);
  else location.assign(raw.url);
});
// The page of an answered question is none to go back to.
addEventListener("htmx:before:history:update", ({ detail: { history: entry, sourceElement } }) => {
  const isSame = entry.path === location.pathname + location.search;
  const isAnswered = sourceElement.matches("form[method=post]") && placeOf(location.origin + entry.path) === placeOf(shown);
  if (isSame || isAnswered) entry.type = "replace";
});
addEventListener("htmx:error", () => look());

// The number of a line leads to its address, in the place where it is.
document.addEventListener("click", ({ target }) => {
  const line = target.closest?.(".lines:not(.viewer) .line > [data-n]")?.parentNode;
  if (!line) return;
  const place = { left: scrollX, top: scrollY, behavior: "instant" };
  location.hash = line.id;
  scrollTo(place);
});

// Loads more rows below the others.
document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a.more"), list = document.querySelector("#content [data-rows]");
  if (!link || !list || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  event.stopPropagation();
  const { page } = await request(link.href);
  const rows = [...(page?.querySelectorAll("#content [data-rows] > [id]") ?? [])]
    .filter((row) => !document.getElementById(row.id)).map((row) => document.importNode(row, true));
  if (!rows.length) {
    location.assign(link.href);
    return;
  }
  for (const row of rows) row.dataset.liveKept = "";
  list.append(...rows);
  const next = page.querySelector("a.more"), place = link.parentNode;
  Object.assign(place.dataset, { liveOwn: "", liveKept: "" }); // what is asked for again begins with the first rows
  if (next) link.replaceWith(document.importNode(next, true));
  else place.hidden = true;
  for (const row of rows) htmx.process(row);
  if (event.isTrusted) rows[0].querySelector("a")?.focus({ preventScroll: true });
  settle();
}, true);

// The stream of a thread that is at work; whether there is one.
function listening() {
  const list = document.getElementById("turns");
  if (!list || document.hidden) return false;
  return listen(list, tell, () => {
    pause = SOON;
    clearTimeout(timer);
    timer = setTimeout(look, 100);
  });
}

// The graph is laid out beside the page's own thread, once everything else is there.
function drawn() {
  const graph = document.getElementById("graph");
  if (!graph?.dataset.graph || graph.dataset.live) return;
  graph.dataset.liveOwn = "";
  graph.addEventListener("live:page", ({ detail }) => {
    if (!detail.dataset.graph || detail.dataset.graph === graph.dataset.graph) return;
    graph.dataset.graph = detail.dataset.graph;
    import("./graph.js").then((drawing) => drawing.draw(graph));
  });
  import("./graph.js").then((drawing) => drawing.draw(graph));
}

// At once where the script is there, so that no change of the page is seen without its comments.
let review = null;
async function reviewed() {
  review ??= await import("./review.js");
  review.show();
}

// After each change.
function settle() {
  refresh(lost.textContent !== "");
  listening();
  drawn();
  if (document.querySelector("textarea[name=comments]")) reviewed();
  if (document.querySelector("[data-lines]")) import("./output.js").then((output) => output.show());
}

for (const kind of ["online", "offline"]) addEventListener(kind, () => look());

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    silence();
  } else {
    pause = SOON;
    refresh(lost.textContent !== "");
    listening();
    look();
  }
});

setInterval(() => {
  if (document.hidden) return;
  refresh(lost.textContent !== "");
  count();
}, 1000);
giveBack(() => {});
settle();
again();
