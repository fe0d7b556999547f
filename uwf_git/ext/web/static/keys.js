// Keys without a modifier: to the search, through the rows of a page. None is taken while somebody types, and all can be
// switched off, since speech input may press them by accident.

const ROWS = ".threads > li, .timeline tbody > tr, .hits li, .compared > li";
const OFF = "uwf.keys"; // in the browser's own storage

const keys = {
  "/": ["to the search field", search],
  j: ["to the next row", () => move(1)],
  k: ["to the previous row", () => move(-1)],
  "?": ["this list", () => list.showModal()],
};

function search() {
  const field = document.querySelector("main input[type=search]");
  if (field) field.select();
  else location.assign("/search");
  field?.focus();
}

// From the row that has the focus, else from the edge of the window.
function move(by) {
  const links = [...document.querySelectorAll(ROWS)].map((row) => row.querySelector("a")).filter((link) => link?.checkVisibility());
  if (by < 0) links.reverse();
  const at = links.findIndex((link) => link.closest(ROWS).contains(document.activeElement));
  const inside = (link) => (by > 0 ? link.getBoundingClientRect().top >= 0 : link.getBoundingClientRect().bottom <= innerHeight);
  (at < 0 ? links.find(inside) : links[at + 1])?.focus();
}

function isOff() {
  try {
    return localStorage.getItem(OFF) === "off";
  } catch {
    return false; // this browser keeps nothing
  }
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || isOff()) return;
  if (event.target.closest?.("input, textarea, select, dialog, [contenteditable]") || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key][1]();
});

function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

const list = element("dialog");
const title = element("h2", "Keys"), names = element("dl"), use = element("input"), close = element("button", "Close");
title.id = "keys-title";
names.className = "facts";
for (const [key, [what]] of Object.entries(keys)) names.append(element("dt", element("kbd", key)), element("dd", what));
use.type = "checkbox";
use.checked = !isOff();
use.addEventListener("change", () => {
  try {
    localStorage.setItem(OFF, use.checked ? "on" : "off");
  } catch {
    use.checked = true;
  }
});
close.addEventListener("click", () => list.close());
list.setAttribute("aria-labelledby", title.id);
list.append(title, names, element("p", element("label", use, " Use these keys")), close);

const open = element("button", "Keys");
open.addEventListener("click", () => list.showModal());
const foot = element("footer", open);
foot.className = "keys";
document.body.append(foot, list);
