// Keeps a page up to date without moving what is being read. While the page is visible it asks for itself again; states,
// counts and times change where they stand, new steps come below the others, and whatever would move something waits at
// the edge until it is asked for.

import "./keys.js";
import { listen, silence } from "./stream.js";

const SOON = 2000, LATER = 5000; // milliseconds between two looks
const ROWS = "ol.threads > li[id], .timeline tbody > tr[id]";
const HEADS = ".actions input[name=head], .actions input[name=at]";

const content = () => document.getElementById("content");
let tag = document.body.dataset.tag;
let pause = SOON;
let timer = 0;
let waiting = null; // the page as it is now, where it isn't shown yet
let shown = signature(document);

// One place where a screen reader hears of finished steps.
const told = document.createElement("p");
told.className = "visually-hidden";
told.setAttribute("aria-live", "polite");
const edge = document.createElement("button");
edge.className = "news";
edge.hidden = true;
edge.addEventListener("click", show);
// And one that says that nothing new can come, and why.
const lost = document.createElement("p");
lost.className = "lost";
lost.setAttribute("role", "status");
document.body.append(told, lost, edge);

const tell = (text) => { told.textContent = text; };

async function look() {
  clearTimeout(timer);
  if (document.hidden || !tag) return;
  const answer = await asked(location.pathname + location.search, { "If-None-Match": tag });
  pause = answer.status === 200 ? SOON : Math.min(LATER, pause * 1.25);
  if (answer.status === 200) {
    tag = answer.tag ?? tag;
    take(answer.page);
    await follow(answer.page);
  }
  missing(answer.status);
  clearTimeout(timer);
  timer = setTimeout(look, pause);
}

// A page of the server: its status, 0 where there is no server, its tag, and itself where there is one.
async function asked(address, headers = {}) {
  try {
    const answer = await fetch(address, { headers, cache: "no-store", signal: AbortSignal.timeout(20000) });
    const page = answer.status === 200 ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
    return { status: answer.status, tag: answer.headers.get("etag"), page };
  } catch {
    return { status: 0 };
  }
}

// Says why nothing new can come, from the time on when something came last.
let heard = new Date();
function missing(status) {
  const was = lost.textContent;
  const since = () => heard.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  lost.textContent = {
    0: `No connection since ${since()}: is uwf web still running?`,
    200: "",
    304: "",
    401: "uwf web was started anew: open the address that it printed.",
    404: document.querySelector("[data-thread]") ? "This thread was removed." : "This page is no longer there.",
  }[status] ?? `Nothing new since ${since()}: uwf web cannot show this page (${status}).`;
  if (!lost.textContent) heard = new Date();
  if (was && !lost.textContent) listening();
  if (lost.textContent) silence();
}

// What a page says, but for what changes in place.
function signature(page) {
  const copy = page.getElementById("content").cloneNode(true);
  copy.querySelector("#older")?.parentNode.remove();
  for (const each of copy.querySelectorAll("#turns, #graph, #rows, #nothing, .newest, .badge, .tabs .count, .left")) each.remove();
  for (const each of copy.querySelectorAll(HEADS)) for (const name of ["value", "max"]) each.removeAttribute(name);
  for (const each of copy.querySelectorAll("[data-place], .threads .meta")) each.replaceChildren();
  for (const each of copy.querySelectorAll("[data-head]")) each.removeAttribute("data-head");
  for (const each of copy.querySelectorAll("time")) each.textContent = "";
  for (const each of copy.querySelectorAll("[data-since]")) each.removeAttribute("title");
  return copy.innerHTML;
}

function take(page) {
  const grown = grow(page);
  inPlace(page);
  if (grown) heads(page);
  const now = signature(page);
  waiting = grown && now === shown ? null : page;
  const before = edge.textContent;
  edge.hidden = !waiting;
  if (!waiting) return;
  const rows = fresh(page);
  const state = status(page);
  const kind = page.getElementById("steps") ? "step" : "thread";
  const parts = rows.length ? [`${rows.length} new ${kind}${rows.length > 1 ? "s" : ""}`] : [];
  if (state && state !== status(document, true)) parts.push(sentence(page));
  const text = parts.join(", ") || "This page has changed";
  edge.textContent = `${text[0].toUpperCase()}${text.slice(1)} — show`;
  if (rows.length && edge.textContent !== before && kind === "step" && !listening()) tell(parts[0]);
  listening();
}

// Adds the steps that a page has below those that are shown; false where they aren't merely more of them.
function grow(page) {
  const now = page.getElementById("rows"), old = document.getElementById("rows");
  if (!now) return !old;
  const rows = [...now.querySelectorAll("tbody > tr")], known = [...(old?.querySelectorAll("tbody > tr") ?? [])];
  const count = rows.findIndex((row) => !document.getElementById(row.id));
  const more = count < 0 ? [] : rows.slice(count), last = known.slice(known.length - (rows.length - more.length));
  if (more.some((row) => document.getElementById(row.id))) return false;
  if ((known.length && more.length === rows.length) || last.some((row, index) => row.id !== rows[index].id)) return false;
  if (!more.length) return true;
  if (!old && !document.getElementById("nothing")) return false;
  const added = more.map((row) => document.importNode(row, true));
  for (const each of document.querySelectorAll(".fresh")) each.classList.remove("fresh");
  for (const each of added) each.classList.add("fresh");
  still(() => {
    if (old) old.querySelector("tbody").append(...added);
    else {
      const table = document.importNode(now, true);
      table.querySelector("tbody").replaceChildren(...added);
      document.getElementById("nothing").replaceWith(table);
    }
  });
  if (!listening()) tell(`${more.length} new step${more.length > 1 ? "s" : ""}`);
  return true;
}

// Lengthens the list of steps without moving what is read: what stands below it stays where it is in the window, if it
// has the middle of the window or the focus.
function still(lengthen) {
  const section = document.getElementById("steps").closest("section"), below = section.nextElementSibling;
  const top = below?.getBoundingClientRect().top;
  const focused = section.compareDocumentPosition(document.activeElement) & Node.DOCUMENT_POSITION_FOLLOWING;
  lengthen();
  if (below && (top < innerHeight / 2 || focused)) scrollBy(0, below.getBoundingClientRect().top - top);
}

// What can be done to a thread goes on from the last step that is shown. What answers a question does so from the step
// that asked it.
function heads(page) {
  const now = new Map([...page.querySelectorAll(HEADS)].map((each) => [keyOf(each), each]));
  for (const each of document.querySelectorAll(HEADS)) {
    const other = now.get(keyOf(each));
    if (!other) continue;
    if (each.value === each.defaultValue && each !== document.activeElement) each.value = other.value;
    each.defaultValue = other.value;
    each.max = other.max;
  }
}

// The rows that a page has and the one that is shown doesn't.
const fresh = (page) => [...page.querySelectorAll(ROWS)].filter((row) => !document.getElementById(row.id));

const sentence = (page) => page.querySelector("[data-status]")?.dataset.sentence ?? "";

let told_status = status(document);
function status(page, before = false) {
  return before ? told_status : page.querySelector("[data-status]")?.dataset.status;
}

// Makes something say what it says now, unless it holds what somebody is at.
function put(old, now) {
  if (!old || !now || old.outerHTML === now.outerHTML || old.contains(document.activeElement)) return;
  old.className = now.className;
  if (old.innerHTML !== now.innerHTML) old.replaceChildren(...document.importNode(now, true).childNodes);
  for (const name of ["datetime", "title"]) if (now.hasAttribute(name)) old.setAttribute(name, now.getAttribute(name));
}

// Changes what takes the same room. What a page no longer has is told as what it was, or by the state of the thread.
function inPlace(page) {
  const counts = page.querySelectorAll(".tabs .count");
  document.querySelectorAll(".tabs .count").forEach((each, index) => put(each, counts[index]));
  put(document.querySelector("[data-status] .badge"), page.querySelector("[data-status] .badge"));
  const places = new Map([...page.querySelectorAll("[data-place]")].map((each) => [each.dataset.place, each]));
  for (const each of content().querySelectorAll("[data-place]")) {
    const now = places.get(each.dataset.place), words = sentence(page);
    if (now) put(each, now);
    else each.textContent = each.dataset.gone ?? `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
  }
  for (const row of document.querySelectorAll(ROWS)) asItIs(row, page);
  // What can't be done now isn't offered.
  const offered = new Set([...page.querySelectorAll("form.action")].map((each) => each.getAttribute("action")));
  for (const form of content().querySelectorAll("form.action"))
    for (const button of form.querySelectorAll("button")) button.disabled = !offered.has(form.getAttribute("action"));
  const graph = document.getElementById("graph"), drawn = page.getElementById("graph");
  if (graph && drawn && drawn.dataset.graph !== graph.dataset.graph) {
    graph.dataset.graph = drawn.dataset.graph;
    if (graph.dataset.drawn) import("./graph.js").then((each) => each.draw(graph));
  }
  refresh();
}

function asItIs(row, page) {
  const now = page.getElementById(row.id);
  for (const part of [".badge", "time", ".meta"]) if (now) put(row.querySelector(part), now.querySelector(part));
}

// Threads that have left the tab which is shown say where they are now all the same.
async function follow(page) {
  const away = [...document.querySelectorAll("ol.threads > li[id]")].filter((row) => !page.getElementById(row.id));
  if (!away.length) return;
  const query = away.slice(0, 50).map((row) => `&thread=${encodeURIComponent(row.id.slice(2))}`).join("");
  const now = (await asked(`/?tab=all${query}`)).page;
  if (now) for (const row of away) asItIs(row, now);
  refresh();
}

// Shows the page as it is now, in the place where the reader was, with what was opened, typed and focused.
function show() {
  if (!waiting) return;
  const page = waiting, old = content(), now = page.getElementById("content");
  const rows = fresh(page).map((row) => row.id);
  const asked = document.activeElement === edge;
  const opened = [...old.querySelectorAll("details")].map((each) => [keyOf(each), each.open]);
  const typed = [...old.querySelectorAll("input:not([type=hidden]), textarea, select")].map((each) => [keyOf(each), each]);
  const focus = old.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  const anchor = [...old.querySelectorAll("[id]")].find((each) => each.getBoundingClientRect().top >= 0);
  const top = anchor?.getBoundingClientRect().top;
  shown = signature(page);
  for (const id of ["turns", "graph"]) keep(page, id);
  older(page);
  old.replaceChildren(...document.importNode(now, true).childNodes);
  // These go on where they were: with their own words, place and size.
  for (const id of ["turns", "graph"]) if (kept[id]) document.getElementById(id)?.replaceWith(kept[id]);
  document.title = page.title;
  told_status = status(document);
  const found = new Map([...old.querySelectorAll("details, input, textarea, select, a, button, [tabindex]")].map((each) => [keyOf(each), each]));
  for (const [key, open] of opened) if (found.has(key)) found.get(key).open = open;
  for (const [key, each] of typed) {
    const same = found.get(key);
    if (!same) leave(each);
    else if ("checked" in each && /^(checkbox|radio)$/.test(each.type)) same.checked = each.checked;
    else same.value = each.value;
  }
  if (left) content().prepend(left);
  if (focus) found.get(focus)?.focus({ preventScroll: true });
  waiting = null;
  edge.hidden = true;
  const place = anchor && document.getElementById(anchor.id);
  if (place) scrollBy(0, place.getBoundingClientRect().top - top);
  const first = rows.length ? document.getElementById(rows[0]) : null;
  for (const id of rows) document.getElementById(id)?.classList.add("fresh");
  first?.scrollIntoView({ block: "nearest" });
  if (asked) (first?.querySelector("a") ?? old).focus({ preventScroll: true });
  refresh();
  listening();
  drawn();
}

// What was typed and has no place any more stays, to be copied.
let left = null;
function leave(field) {
  if (field.readOnly || !/^(text|textarea|search)$/.test(field.type) || field.value === field.defaultValue) return;
  if (!left) {
    left = document.createElement("section");
    left.className = "notice left";
    const words = document.createElement("p"), done = document.createElement("button");
    words.textContent = "What you had typed has no place here any more. It is kept until you leave the page:";
    done.textContent = "Let go of it";
    done.addEventListener("click", () => {
      left.remove();
      left = null;
    });
    left.append(words, done);
  }
  const copy = document.createElement("textarea");
  copy.readOnly = true;
  copy.rows = 3;
  copy.setAttribute("aria-label", "What you had typed");
  copy.value = field.value;
  left.lastElementChild.before(copy);
}

const kept = {};
function keep(page, id) {
  const now = page.getElementById(id), old = document.getElementById(id);
  kept[id] = now && old && old.dataset.live ? old : null;
  if (kept[id] && now.dataset.graph) old.dataset.graph = now.dataset.graph;
}

// Older steps that were loaded on stay.
function older(page) {
  const rows = [...document.querySelectorAll(".timeline tbody > tr")];
  const first = page.querySelector(".timeline tbody > tr[id]");
  const at = first ? rows.findIndex((row) => row.id === first.id) : -1;
  if (at <= 0) return;
  first.parentNode.prepend(...rows.slice(0, at).map((row) => page.importNode(row, true)));
  swap(page.getElementById("older"), document.getElementById("older"), page);
}

function swap(old, now, page) {
  if (old && now) old.parentNode.replaceWith(page.importNode(now.parentNode, true));
  else old?.parentNode.remove();
}

// What names an element in this page and in the next.
function keyOf(each) {
  if (each.id) return `#${each.id}`;
  const near = each.closest("[id]")?.id ?? "";
  // A field belongs to its form, and what answers a question to that question.
  const asks = each.closest(".asks")?.querySelector(".task")?.textContent ?? "";
  const within = `${each.form?.getAttribute("action") ?? ""} ${each.tagName === "BUTTON" ? each.value : ""} ${asks}`;
  const said = each.name || each.getAttribute("href") || each.querySelector?.("summary")?.textContent || each.textContent.slice(0, 80);
  return `${each.tagName} ${near} ${within} ${said}`;
}

// Loads older steps and threads on where they belong.
document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a.more");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const before = link.id === "older";
  const list = document.querySelector(before ? ".timeline tbody" : "ol.threads");
  if (!list) return;
  event.preventDefault();
  try {
    const answer = await fetch(link.href);
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const rows = [...page.querySelectorAll(before ? ".timeline tbody > tr" : "ol.threads > li")];
    const more = [...rows].map((row) => document.importNode(row, true)).filter((row) => !row.id || !document.getElementById(row.id));
    const first = before ? list.firstElementChild : more[0];
    const top = first?.getBoundingClientRect().top;
    if (before) list.prepend(...more);
    else list.append(...more);
    if (before) scrollBy(0, first.getBoundingClientRect().top - top);
    swap(link, before ? page.getElementById("older") : page.querySelector("a.more"), document);
    (before ? more.at(-1) : more[0])?.querySelector("a")?.focus({ preventScroll: true });
    refresh();
  } catch {
    location.assign(link.href);
  }
});

// Times, in the words of the server.
function refresh() {
  for (const each of document.querySelectorAll("time[datetime]")) {
    if (each.dataset.since && lost.textContent) continue; // whether it still goes on isn't known
    const seconds = (Date.now() - Date.parse(each.dateTime)) / 1000;
    const text = each.dataset.since ? lasted(seconds) : ago(seconds, each.dateTime);
    if (!Number.isNaN(seconds) && each.textContent !== text) each.textContent = text;
  }
}

function ago(seconds, moment) {
  if (seconds < 1) return "now";
  let left = Math.floor(seconds);
  for (const [size, unit] of [[60, "s"], [60, "m"], [24, "h"], [31, "d"]]) {
    if (left < size) return `${left}${unit} ago`;
    left = Math.floor(left / size);
  }
  return moment.slice(0, 10);
}

export function lasted(seconds) {
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
    setTimeout(look, 100);
  });
}

// The graph is laid out beside the page's own thread, once everything else is there.
function drawn() {
  const graph = document.getElementById("graph");
  if (graph?.dataset.graph && !graph.dataset.live) import("./graph.js").then((each) => each.draw(graph));
}

for (const each of ["online", "offline"]) addEventListener(each, () => look());

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

setInterval(() => { if (!document.hidden) refresh(); }, 1000);
refresh();
listening();
drawn();
timer = setTimeout(look, pause);
