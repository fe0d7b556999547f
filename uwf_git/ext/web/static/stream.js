// The turns of the step that is being made, as they come, in a box of their own that scrolls: what was said last is
// followed as long as its end is in sight.

import { element } from "./dom.js";

const MOST = 200; // turns that stay
const LONGEST = 200000; // characters of what a command prints that stay
const STALLED = 60; // seconds without a word

let source = null;
let box = null;
let unseen = 0;
let more = null;
let stall = null;
let heard = Date.now(); // when the agent said something last
let awaited = "";

export function silence() {
  source?.close();
  source = null;
}

// Follows the thread of a list of turns; whether an agent is working on it, as far as is known. `tell` says what a screen
// reader shall hear, `changed` is called when the page will say something else.
export function listen(list, tell, changed) {
  if (source && box === list) return true;
  silence();
  if (!list.dataset.events) return false;
  box = list;
  prepare();
  source = new EventSource(`${list.dataset.events}?after=${encodeURIComponent(list.dataset.after ?? "")}`);
  const mine = source;
  const on = (kind, act) => mine.addEventListener(kind, (event) => {
    if (mine === source) act(JSON.parse(event.data), event);
  });
  mine.addEventListener("open", () => { // both are told again from their beginning
    for (const item of [saying(), printing()]) if (item) item.dataset.old = "1";
  });
  mine.addEventListener("error", () => {
    if (mine !== source) return;
    if (mine.readyState === EventSource.CLOSED) source = null;
    changed();
  });
  on("began", ({ made, step, role, by, silent }) => {
    hears(by === "uwf-exec" ? "" : ", waits for the model", silent);
    if (box.dataset.made !== String(made) && box.children.length) add(element("li", { class: "heading meta" }, `Step ${step}: ${role}, ${by}`));
    box.dataset.made = made;
  });
  on("said", ({ text }) => {
    hears(", waits for the model");
    const follows = atEnd(), item = saying() ?? begin("saying", "assistant", "p"), words = item.querySelector("p");
    if (item.dataset.old) words.textContent = text;
    else words.append(text);
    delete item.dataset.old;
    if (follows) box.scrollTop = box.scrollHeight;
  });
  on("dropped", () => saying()?.remove());
  on("printed", ({ html }) => {
    hears("");
    const follows = atEnd(), top = box.scrollTop;
    const item = printing() ?? begin("printing", "output", "pre"), lines = item.querySelector("pre");
    if (item.dataset.old) lines.replaceChildren();
    delete item.dataset.old;
    const piece = element("span");
    piece.innerHTML = html; // which the server escaped
    lines.append(piece);
    let size = lines.textContent.length;
    if (follows && size > LONGEST) { // its beginning goes only while its end is followed
      while (size > LONGEST && lines.childElementCount > 1) {
        size -= lines.firstElementChild.textContent.length;
        lines.firstElementChild.remove();
      }
      lines.prepend(element("span", {}, "…\n"));
    }
    box.scrollTop = follows ? box.scrollHeight : top;
  });
  on("turn", ({ id, html, tool }) => {
    hears(tool ? ", waits for the model" : ", waits for a tool or the model");
    box.dataset.after = id;
    printing()?.classList.replace("printing", "printed"); // it stays where it is read, and the turn comes below
    if (box.querySelector(`[data-turn="${CSS.escape(id)}"]`)) return;
    const item = element("li", { "data-turn": id });
    item.innerHTML = html;
    add(item, item.querySelector(".assistant") && saying());
  });
  on("step", ({ step, failed, verdict, rules }, { lastEventId }) => {
    saying()?.remove();
    printing()?.classList.replace("printing", "printed");
    box.dataset.after = lastEventId;
    const words = failed ? `An attempt at step ${step} failed` : `Step ${step} is finished`;
    const badge = element("span", rules && !failed ? { class: "badge" } : {}, verdict);
    add(element("li", { class: "came" }, ...(verdict ? [`${words}: `, badge] : [words])));
    tell(rules ? `${words}: ${verdict}` : words);
    changed();
  });
  on("rest", () => {
    silence();
    hears("");
    saying()?.remove();
    changed();
  });
  return true;
}

// The agent said something, so many seconds ago; what it waits for since.
function hears(waitsFor, ago = 0) {
  heard = Date.now() - 1000 * ago;
  awaited = waitsFor;
  count();
}

// Says that nothing has come for a while, and counts.
export function count() {
  if (!stall) return;
  const minutes = Math.floor((Date.now() - heard) / 60000);
  stall.hidden = !source || minutes * 60 < STALLED;
  const text = stall.hidden ? "" : `silent for ${minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`}${awaited}`;
  if (stall.textContent !== text) stall.textContent = text;
}

const saying = () => box.querySelector(".saying");
const printing = () => box.querySelector(".printing");
const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 40;

function prepare() {
  if (box.dataset.live) return;
  box.dataset.live = "1";
  box.dataset.liveOwn = "";
  box.tabIndex = 0;
  box.style.overflowAnchor = "none"; // its place is kept here
  box.setAttribute("aria-label", "Turns of the step that is being made");
  box.dataset.made = (box.dataset.after ?? "").split(".")[0];
  box.scrollTop = box.scrollHeight;
  more = element("button", { class: "tail", hidden: "", "data-live-added": "" });
  more.addEventListener("click", () => {
    box.scrollTop = box.scrollHeight;
    box.focus({ preventScroll: true });
  });
  stall = element("p", { class: "stall", hidden: "", "data-live-added": "" });
  box.before(stall);
  box.after(more);
  box.addEventListener("scroll", () => {
    if (atEnd()) seen();
  });
}

function seen() {
  unseen = 0;
  more.hidden = true;
}

function begin(kind, name, tag) {
  const turn = element("div", { class: kind === "saying" ? "turn assistant" : "turn tool" }, element("strong", {}, name), element(tag));
  const item = element("li", { class: kind }, turn);
  box.append(item);
  return item;
}

// Puts something at the end, but before what is being said, or in the place of the `words` that it was made of: at once,
// so that the box is never short of what somebody reads there.
function add(item, words = null) {
  const follows = atEnd(), top = box.scrollTop;
  if (words) words.replaceWith(item);
  else if (saying()) saying().before(item);
  else box.append(item);
  if (!follows) box.scrollTop = top;
  if (follows) {
    while (box.children.length > MOST) box.firstElementChild.remove();
    box.scrollTop = box.scrollHeight;
  } else {
    if (!item.matches("[data-turn]")) return;
    unseen += 1;
    more.textContent = `${unseen} new turn${unseen > 1 ? "s" : ""} — show`;
    more.hidden = false;
    if (!more.isConnected) box.after(more);
  }
}
