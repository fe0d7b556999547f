// Keys without a modifier, which the page declares: `data-key="r" data-key-label="retry"` on what a key presses, and
// `data-rows` on a list whose rows j and k go through and x checks. None is taken while somebody types, and all can be
// switched off, since speech input may press them by accident. Ctrl+Enter in a text sends its form, or goes to its
// choices. Going to a row of `data-rows="open"` opens it.

import { content, element } from "./dom.js";

const ROWS = "[data-rows] > *";
const TYPING = "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), textarea, select, dialog, [contenteditable]";
const OFF = "uwf.keys"; // in the browser's own storage

const always = {
  "/": ["to the search field", search],
  j: ["to the next row", () => move(1)],
  k: ["to the previous row", () => move(-1)],
  x: ["check the row", check],
  "?": ["this list", open],
};

// What is sent is what the reader was shown: a button that a change brought under the hand is not pressed, and no answer
// is sent, however, to what has changed above it.
const accepted = new WeakMap(); // what each button sends
let isLeaving = false;

const ANSWERS = ".answer-bar button";

const sends = (node) => node.type === "submit" && node.form?.matches("[method=post]");
const isAccepted = (node) => !sends(node) || accepted.get(node) === sentBy(node);

function sentBy(node) {
  const fields = [...node.form.elements].filter((field) => field.matches("input:not([name=then], [type=checkbox])"));
  return JSON.stringify([node.form.getAttribute("action"), node.name, node.value, labelOf(node), fields.map((field) => [field.name, field.defaultValue])]);
}

// The request above the buttons of which the end was in the window, as its `data-whole`.
let readWhole = "";

const whole = () => content().querySelector("[data-whole]");

function lookAtEnd() {
  const request = whole(), bar = content().querySelector(".answer-bar");
  if (!request || !bar) return;
  const { bottom } = request.getBoundingClientRect();
  if (bottom > 0 && bottom <= bar.getBoundingClientRect().top + 1) readWhole = request.dataset.whole;
}
document.addEventListener("scroll", lookAtEnd, { capture: true, passive: true });

function isUnread(node) {
  if (!whole() || !node.closest(".answer-bar") || !sends(node) || node.value === "deny") return false;
  lookAtEnd();
  const isIt = readWhole !== whole().dataset.whole, status = node.form.querySelector("[data-unread]");
  if (status) status.textContent = isIt ? status.dataset.unread : "";
  return isIt;
}

// The reader sees the page as it is now.
export function accept() {
  isLeaving = false;
  lookAtEnd();
  for (const node of document.querySelectorAll(`[data-key], ${ANSWERS}`)) if (sends(node)) accepted.set(node, sentBy(node));
}

// Whether a button would send what the reader was not shown, which the page says then.
function isRefused(node) {
  if (isAccepted(node)) return isUnread(node);
  document.dispatchEvent(new Event("keys:stale"));
  return true;
}

// Before the script that sends forms.
addEventListener("submit", (event) => {
  if (!event.submitter?.matches(ANSWERS) || !isRefused(event.submitter)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);

// Another page is requested: until it is here, keys send nothing.
export function leave(is = true) {
  isLeaving = is;
}

export const isStale = () => [...document.querySelectorAll(ANSWERS)].some((node) => isReachable(node) && !isAccepted(node));

const isReachable = (node) => !node.disabled && node.checkVisibility({ visibilityProperty: true });
const declared = () => [...document.querySelectorAll("[data-key]")].filter(isReachable);
const rows = () => [...document.querySelectorAll(ROWS)].filter((row) => row.checkVisibility());

function search() {
  const field = document.querySelector("main input[type=search]");
  if (field) field.select();
  else location.assign("/search");
  field?.focus();
}

// What of a row takes the focus.
const handle = (row) => row.querySelector("a[href], summary, button") ?? (row.matches("a[href]") ? row : null);

const current = (list) => list.indexOf(document.activeElement?.closest(ROWS));

// From the row that has the focus, else from the edge of the window.
function move(by) {
  const list = rows().filter(handle);
  if (by < 0) list.reverse();
  let at = current(list);
  if (at < 0) at = list.findIndex((row) => opens(row) && row.querySelector("a[aria-current]")?.pathname === location.pathname);
  const isInside = (row) => {
    const { top, bottom } = handle(row).getBoundingClientRect();
    return by > 0 ? top >= 0 : bottom <= innerHeight;
  };
  const row = at < 0 ? list.find(isInside) : list[at + 1];
  if (!row) return;
  handle(row).focus();
  if (!opens(row)) return;
  handle(row).dataset.hxReplaceUrl = "true"; // one press of Back leaves the list
  handle(row).click();
}

const opens = (row) => row.closest("[data-rows=open]");

function check() {
  const list = rows();
  list[current(list)]?.querySelector("input[type=checkbox]")?.click();
}

function press(node) {
  if (node.matches("input:not([type=checkbox], [type=radio]), textarea, select")) node.focus();
  else node.click();
}

function isOff() {
  try {
    return localStorage.getItem(OFF) === "off";
  } catch {
    return false; // this browser keeps nothing
  }
}

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (event.defaultPrevented || event.isComposing || event.metaKey || event.altKey) return;
  if (event.ctrlKey) {
    if (key === "Enter" && target.matches?.("textarea") && target.form) send(event, target.form);
    return;
  }
  if (isOff() || target.closest?.(TYPING)) return;
  const node = declared().find((button) => button.dataset.key === key);
  if (!node && !Object.hasOwn(always, key)) return;
  event.preventDefault();
  if (!node) always[key][1]();
  else if (!(sends(node) && isLeaving) && !isRefused(node)) press(node);
});

function send(event, form) {
  const buttons = [...form.elements].filter((field) => field.type === "submit" && isReachable(field));
  const main = buttons.find((button) => button.matches("[data-main], .main, .primary")) ?? (buttons.length === 1 ? buttons[0] : null);
  if (!main && !buttons.length) return;
  event.preventDefault();
  if (!main) {
    const hint = form.querySelector("[data-hint]");
    if (hint) hint.textContent = hint.dataset.hint;
    buttons[0].focus();
    return;
  }
  form.requestSubmit(main);
}

// The list of keys

const names = element("dl", { class: "facts" });
const use = element("input", { type: "checkbox" });
const close = element("button", { type: "button" }, "Close");
const list = element("dialog", { id: "keys", "data-live-own": "", "aria-labelledby": "keys-title" },
  element("h2", { id: "keys-title" }, "Keys"), names, element("p", {}, element("label", {}, use, " Use these keys")), close);
const opener = element("button", { type: "button" }, "Keys");
const foot = element("footer", { id: "keys-foot", class: "keys", "data-live-own": "" }, opener);

function labelOf(node) {
  return node.dataset.keyLabel || node.getAttribute("aria-label") || node.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
}

function open() {
  const labels = new Map();
  for (const node of declared()) if (!labels.has(node.dataset.key)) labels.set(node.dataset.key, labelOf(node));
  const hasRows = rows().length > 0, hasChecks = rows().some((row) => row.querySelector("input[type=checkbox]"));
  for (const [key, [label]] of Object.entries(always)) {
    if (labels.has(key) || (/[jk]/.test(key) && !hasRows) || (key === "x" && !hasChecks)) continue;
    labels.set(key, label);
  }
  names.replaceChildren(...[...labels].flatMap(([key, label]) => [element("dt", {}, element("kbd", {}, key)), element("dd", {}, label)]));
  use.checked = !isOff();
  list.showModal();
}

use.addEventListener("change", () => {
  try {
    localStorage.setItem(OFF, use.checked ? "on" : "off");
  } catch {
    use.checked = true;
  }
});
close.addEventListener("click", () => list.close());
opener.addEventListener("click", open);
document.body.append(foot, list);
accept();
