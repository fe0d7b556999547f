// Keeps a page up to date without moving what is being read. Links and forms of the site change the page by morphing,
// and while the page is visible it asks for itself again. What takes its place is changed at once. What would push or
// remove something that is in view is held back, and announced at the edge.

import htmx from "./htmx/htmx.js";
import { accept, isStale, leave as leaving } from "./keys.js";
import { count, listen, silence } from "./stream.js";

const SOON = 2000, LATER = 5000, REST = 10000; // milliseconds between two requests
const AWAY = 60000; // milliseconds after which a reader who does nothing may be away
const OWN = "[data-live-own]"; // elements whose scripts change them
const ADDED = "[data-live-added]"; // elements that scripts added
const FIELDS = "input:not([type=hidden], [type=submit], [type=button]), textarea, select";
const KEYED = `form, details, section, button, input, textarea, select`;
const BLOCKS = "address, article, aside, blockquote, dd, details, div, dl, dt, fieldset, figure, footer, form, h1, h2, h3, h4, h5,"
  + " header, hr, li, main, nav, ol, p, pre, section, table, tbody, td, th, thead, tr, ul";
const YIELDS = "#nothing, [data-live-yields]"; // says that there is nothing, until there is
const ROW = "li[id], tr[id], [data-rows] > [id]";
const LISTED = "[data-rows] > [id^='t-']";
const SWAP = "page strip:false";

let morph;
let tag = document.body.dataset.tag;
let pause = SOON;
let timer = 0;
let visits = 0; // pages that were shown
let shown = location.href;

const content = () => document.getElementById("content");

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

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
  const answer = await request(location.pathname + location.search, { "If-None-Match": tag });
  if (visit !== visits) return; // another page is shown meanwhile
  pause = answer.status === 200 ? SOON : Math.min(Date.now() - active > AWAY ? REST : LATER, pause * 1.25);
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
    told = status(document);
    return;
  }
  const { fresh } = held, noun = { "t": "thread", "s": "step" }[fresh[0]?.[0]] ?? "row";
  const parts = fresh.length ? [counted(fresh.length, `new ${noun}`)] : [];
  if (held.status && held.status !== told) parts.push(held.sentence);
  const text = parts.join(", ") || "This page has changed";
  const words = `${text[0].toUpperCase()}${text.slice(1)} — show`;
  if (fresh.length && noun === "step" && edge.textContent !== words && !listening()) tell(parts[0]);
  edge.textContent = words;
}

const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const sentence = (page) => page.querySelector("[data-status]")?.dataset.sentence ?? "";
const status = (page) => page.querySelector("[data-status]")?.dataset.status;
let told = status(document);

// Shows all of the newest page, in the place where the reader was.
async function show() {
  const address = location.pathname + location.search;
  const visit = visits;
  const page = (await request(address)).page;
  if (!page || visit !== visits) return;
  const asked = document.activeElement === edge;
  identify(document.body);
  identify(page.body);
  const added = grow(page);
  tag = document.body.dataset.tag;
  announce({ changed: false });
  accept();
  added[0]?.scrollIntoView({ block: "nearest" });
  if (asked) (added[0]?.querySelector("a") ?? content()).focus({ preventScroll: true });
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

// Makes the document say what a page says. What was opened and typed stays; typed text without a place is kept to be copied.
function apply(page) {
  const typed = dirty(), body = document.createDocumentFragment();
  for (const own of document.querySelectorAll(`body > ${OWN}`)) page.body.append(element(own.tagName, { id: own.id, "data-live-own": "" }));
  body.append(...page.body.childNodes);
  morph(document.body, body, true);
  document.body.dataset.tag = page.body.dataset.tag ?? "";
  if (page.title) document.title = page.title;
  for (const [field, value] of typed) if (field.isConnected) restore(field, value); else leave(field, value);
  if (left && !left.isConnected) content().prepend(left);
  htmx.process(document.body);
}

// Fields that somebody changed, with their values.
function dirty() {
  return [...content().querySelectorAll(FIELDS)].filter(isDirty).map((field) => [field, valueOf(field)]);
}

function isDirty(field) {
  if (field.readOnly) return false;
  if (/^(checkbox|radio)$/.test(field.type)) return field.checked !== field.defaultChecked;
  if (field.options) return field.dataset.liveTyped === "1";
  return field.value !== field.defaultValue;
}

const valueOf = (field) => (/^(checkbox|radio)$/.test(field.type) ? field.checked : field.value);

function restore(field, value) {
  if (/^(checkbox|radio)$/.test(field.type)) field.checked = value;
  else if (field.value !== value) field.value = value;
}

// Typed text that has no place any more, to be copied.
let left = null;
function leave(field, value) {
  if (!/^(text|textarea|search)$/.test(field.type)) return;
  if (!left) {
    const done = element("button", { type: "button" }, "Let go of it");
    done.addEventListener("click", () => {
      left.remove();
      left = null;
    });
    const words = element("p", {}, "What you had typed has no place here any more. It is kept until you leave the page:");
    left = element("section", { id: "live-left", class: "notice left", "data-live-own": "", "data-live-added": "" }, words, done);
  }
  const copy = element("textarea", { readonly: "", rows: "3", "aria-label": "What you had typed" });
  copy.value = value;
  left.lastElementChild.before(copy);
}

// Gives elements that have state a name by which morphing finds them again: a field belongs to its form, and the answer
// to a question to that question.
function identify(root) {
  const names = new Map();
  for (const node of root.querySelectorAll(KEYED)) {
    if ((node.id && !node.id.startsWith("live:")) || node.closest(OWN)) continue;
    const asks = node.closest("[data-asks]")?.dataset.asks ?? node.closest(".asks")?.querySelector(".task")?.textContent ?? "";
    const form = node.form?.getAttribute("action") ?? node.getAttribute("action") ?? "";
    const near = node.parentElement.closest("[id]:not([id^='live:'])")?.id ?? "";
    const own = node.name || node.getAttribute("aria-labelledby") || node.querySelector?.("summary")?.textContent || node.textContent;
    const value = /^(BUTTON|INPUT)$/.test(node.tagName) && /^(submit|radio|checkbox)$/.test(node.type) ? node.getAttribute("value") ?? "" : "";
    const key = [node.tagName, near, form, asks, node.tagName === "FORM" ? "" : own, value].map((part) => part.trim().slice(0, 200)).join("|").replace(/\s+/g, "_");
    const times = names.get(key) ?? 0;
    names.set(key, times + 1);
    node.id = `live:${key}${times ? `|${times}` : ""}`;
  }
}

// Makes a new element leave alone what is in view in the old one: its blocks stay, in their order, and none comes
// between them. Blocks that are only more of a list's are added. What is `data-live-whole` changes at once.
function hold(old, now, held) {
  if (old.matches(`${OWN}, [data-live-whole]`) || !isInView(old)) return;
  const keys = keysOf(old), others = keysOf(now), later = new Map();
  for (const [node, key] of others) later.set(key, node);
  const stays = [...keys].filter(([node, key]) => node.matches(ADDED) || (node.matches(BLOCKS) && (isInView(node) || isKept(node))
    && (later.has(key) || !node.matches(YIELDS))));
  const places = new Set();
  for (const [node, key] of stays) {
    let same = later.get(key);
    if (!same) {
      if (!node.matches(ADDED)) gone(node, held);
      same = node.cloneNode(true);
      const before = earlier(node, keys, later);
      if (before) before.after(same);
      for (const [index, field] of [...node.querySelectorAll("input, textarea, select")].entries()) copyState(field, same.querySelectorAll("input, textarea, select")[index]);
    } else hold(node, same, held);
    later.set(key, same);
    places.add(same);
  }
  if (places.size) between(old, now, [...places], keys, others, held);
  for (const [node, key] of keys)
    if (!node.matches(BLOCKS) && later.has(key)) hold(node, later.get(key), held);
}

// What a new element has of the siblings before one of the old.
function earlier(node, keys, later) {
  let each = node.previousElementSibling;
  while (each && !later.has(keys.get(each))) each = each.previousElementSibling;
  return each && later.get(keys.get(each));
}

function copyState(from, to) {
  if (to && from.type !== "file") restore(to, valueOf(from));
}

// Puts the blocks that stay into their order. New ones before and among them are held back, those behind are added.
function between(old, now, places, keys, others, held) {
  const all = [...now.children], indexes = places.map((node) => all.indexOf(node)).filter((index) => index >= 0);
  const first = Math.min(...indexes), last = Math.max(...indexes);
  const top = old.getBoundingClientRect().top, isTopInView = top >= 0 && top < innerHeight;
  const order = [...keys.values()], oldLast = order.indexOf(others.get(all[last]));
  const below = [], replaced = new Set(places.filter((node) => !others.has(node) && !node.matches(ROW)).map(kindOf));
  for (const [index, node] of all.entries()) {
    if (places.includes(node) || !node.matches(BLOCKS)) continue;
    const isBehind = index > last, before = order.indexOf(others.get(node));
    if (before >= 0) {
      if (before > oldLast && !isBehind) below.push(node); // it was below, and would come into view
    } else if (replaced.has(kindOf(node)) || (!isBehind && (index > first || isTopInView))) {
      node.remove();
      held.changed = true;
      if (node.matches(ROW)) held.fresh.push(node.id);
    }
  }
  let after = null;
  for (const node of places) {
    const isHere = node.parentNode === now;
    if (after && (!isHere || !(after.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING))) after.after(node);
    else if (!after && !isHere) now.insertBefore(node, all[first] ?? now.firstChild);
    after = node;
  }
  if (below.length) {
    held.changed = true;
    after.after(...below);
  }
}

const kindOf = (node) => `${node.tagName}.${node.classList[0] ?? ""}`;

// The children of an element with what names each among them.
function keysOf(parent) {
  const times = new Map(), keys = new Map();
  for (const node of parent.children) {
    const name = node.id || kindOf(node);
    const count = times.get(name) ?? 0;
    times.set(name, count + 1);
    keys.set(node, `${name} ${count}`);
  }
  return keys;
}

function isInView(node) {
  const { top, bottom, width, height } = node.getBoundingClientRect();
  return bottom > 0 && top < innerHeight && (width > 0 || height > 0);
}

// Rows that the reader loaded on, what somebody typed, and a box that fills itself stay also out of view.
const isKept = (node) => node.matches(`[data-live-kept], ${OWN}`) || node.querySelector(OWN) || [...node.querySelectorAll(FIELDS)].some(isDirty);

// What a page no longer has, but somebody may be reading, says so, or what the page says of it elsewhere; nothing can be
// done with it.
function gone(node, held) {
  if (node.hasAttribute("data-live-kept")) return;
  held.changed = true;
  for (const row of [node, ...node.querySelectorAll(LISTED)]) if (row.matches(LISTED)) held.away.add(row);
  const words = `${held.sentence.charAt(0).toUpperCase()}${held.sentence.slice(1)}.`;
  for (const place of [node, ...node.querySelectorAll("[data-place]")]) {
    if (!place.dataset.place) continue;
    const now = held.places.get(place.dataset.place);
    if (now) place.replaceChildren(...document.importNode(now, true).childNodes);
    else if (place.textContent !== (place.dataset.gone ?? words)) place.textContent = place.dataset.gone ?? words;
  }
  for (const button of node.querySelectorAll("form[method=post] button")) button.disabled = true;
}

// Changes the document without moving what is read: what has the focus, else what is in the middle of the window.
function anchored(change) {
  const chain = anchors();
  change();
  const [node, top] = chain.find(([each]) => each.isConnected && each.getClientRects().length) ?? [];
  if (!node) return;
  const moved = node.getBoundingClientRect().top - top;
  if (Math.abs(moved) >= 0.5) scrollerOf(node).scrollBy({ top: moved, behavior: "instant" });
}

function anchors() {
  const focus = document.activeElement, main = content();
  let start = focus && main.contains(focus) && focus !== main && isInView(focus) ? focus : null;
  for (let offset = 0; !start && offset < innerHeight / 2; offset += 12)
    for (const y of [innerHeight / 2 + offset, innerHeight / 2 - offset])
      start ??= document.elementsFromPoint(innerWidth / 2, y).find((node) => main.contains(node) && node !== main
        && node.getBoundingClientRect().height < innerHeight / 3 && !isFixed(node));
  const chain = [];
  for (let node = start; node && node !== main; node = node.parentElement) chain.push([node, node.getBoundingClientRect().top]);
  return chain;
}

function isFixed(node) {
  for (let each = node; each && each !== document.body; each = each.parentElement)
    if (/fixed|sticky/.test(getComputedStyle(each).position)) return true;
  return false;
}

function scrollerOf(node) {
  for (let each = node.parentElement; each && each !== document.body; each = each.parentElement)
    if (/auto|scroll/.test(getComputedStyle(each).overflowY) && each.scrollHeight > each.clientHeight) return each;
  return window;
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
    isBack = "HX-History-Restore-Request" in ctx.request.headers;
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
const drafts = new Map(); // what was typed, by address
let source = null; // what asked for the next page
let isBack = false;
let sent = null; // the form whose answer is awaited
let asked = null; // the newest request for another page

function visit(body, spec) {
  visits += 1;
  if (sent?.isConnected) sent.reset?.(); // what it had is told
  sent = null;
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
    left = null;
    const old = content();
    old.replaceWith(element("main", { id: "content", tabindex: "-1" }));
    identify(page.body);
    apply(page);
    content().focus({ preventScroll: true });
  }
  for (const [id, value] of (isBack && drafts.get(location.href)) || []) {
    const field = document.getElementById(id);
    if (field) restore(field, value);
  }
  shown = location.href;
  accept();
  tag = document.body.dataset.tag;
  told = status(document);
  pause = SOON;
  missing(200);
  again();
  settle();
}

addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  if (ctx.request.method === "GET") {
    leaving();
    asked = ctx;
    identify(content());
    drafts.set(shown, dirty().map(([field, value]) => [field.id, value]));
    return;
  }
  const form = ctx.sourceElement;
  sent = form;
  if (form.dataset.busy) event.preventDefault(); // a second click
  form.dataset.busy = "1";
});
addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
  delete ctx.sourceElement.dataset.busy;
  if (ctx === asked) leaving(false);
});
addEventListener("htmx:before:response", (event) => {
  const { raw, status: code } = event.detail.ctx.response;
  if (raw.headers.get("content-type")?.startsWith("text/html")) return;
  event.preventDefault(); // it isn't a page: the browser shows it itself
  if (code >= 400) missing(code);
  else location.assign(raw.url);
});
addEventListener("htmx:before:history:update", ({ detail }) => {
  if (detail.history.path === location.pathname + location.search) detail.history.type = "replace";
});
addEventListener("htmx:error", () => look());
addEventListener("change", ({ target }) => {
  if (target.options) target.dataset.liveTyped = "1";
});

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

// Times, in the words of the server.
function refresh() {
  for (const node of document.querySelectorAll("time[datetime]")) {
    if (node.dataset.since && lost.textContent) continue; // whether it still goes on isn't known
    const seconds = (Date.now() - Date.parse(node.dateTime)) / 1000;
    const text = node.dataset.since ? lasted(seconds) : ago(seconds, node.dateTime);
    if (!Number.isNaN(seconds) && node.textContent !== text) node.textContent = text;
  }
}

function ago(seconds, moment) {
  if (seconds < 1) return "now";
  let rest = Math.floor(seconds);
  for (const [size, unit] of [[60, "s"], [60, "m"], [24, "h"], [31, "d"]]) {
    if (rest < size) return `${rest}${unit} ago`;
    rest = Math.floor(rest / size);
  }
  return moment.slice(0, 10);
}

function lasted(seconds) {
  const whole = Math.max(0, Math.floor(seconds)), minutes = Math.floor(whole / 60);
  if (whole < 60) return `${whole}s`;
  return minutes < 60 ? `${minutes}m ${whole % 60}s` : `${Math.floor(minutes / 60)}h ${minutes % 60}m`;
}

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
  refresh();
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
    refresh();
    listening();
    look();
  }
});

setInterval(() => {
  if (document.hidden) return;
  refresh();
  count();
}, 1000);
settle();
again();
