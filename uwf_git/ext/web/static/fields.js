// Fields that somebody has typed in: their values outlast the changes of a page.

import { content, element, OWN } from "./dom.js";

export const FIELDS = "input:not([type=hidden], [type=submit], [type=button]), textarea, select";
const KEYED = "form, details, section, button, input, textarea, select";

// Fields that somebody changed, with their values.
export function dirty() {
  return [...content().querySelectorAll(FIELDS)].filter(isDirty).map((field) => [field, valueOf(field)]);
}

export function isDirty(field) {
  if (field.readOnly) return false;
  if (/^(checkbox|radio)$/.test(field.type)) return field.checked !== field.defaultChecked;
  if (field.options) return field.dataset.liveTyped === "1";
  return field.value !== field.defaultValue;
}

const valueOf = (field) => (/^(checkbox|radio)$/.test(field.type) ? field.checked : field.value);

export function restore(field, value) {
  if (/^(checkbox|radio)$/.test(field.type)) field.checked = value;
  else if (field.value !== value) field.value = value;
}

export function copyState(from, to) {
  if (to && from.type !== "file") restore(to, valueOf(from));
}

addEventListener("change", ({ target }) => {
  if (target.options) target.dataset.liveTyped = "1";
});

// Typed text that has no place any more, to be copied.
let leftovers = null;
function leave(field, value) {
  if (!/^(text|textarea|search)$/.test(field.type)) return;
  if (!leftovers) {
    const done = element("button", { type: "button" }, "Let go of it");
    done.addEventListener("click", () => {
      leftovers.remove();
      leftovers = null;
    });
    const words = element("p", {}, "What you had typed has no place here any more. It is kept until you leave the page:");
    leftovers = element("section", { id: "live-left", class: "notice left", "data-live-own": "", "data-live-added": "" }, words, done);
  }
  const copy = element("textarea", { readonly: "", rows: "3", "aria-label": "What you had typed" });
  copy.value = value;
  leftovers.lastElementChild.before(copy);
}

// Puts typed values back into their fields. Those whose fields are gone are kept to be copied.
export function giveBack(typed) {
  for (const [field, value] of typed) if (field.isConnected) restore(field, value); else leave(field, value);
  if (leftovers && !leftovers.isConnected) content().prepend(leftovers);
}

export function forget() {
  leftovers = null;
}

// Gives elements that have state a name by which morphing finds them again: a field belongs to its form, and the answer
// to a question to that question.
export function identify(root) {
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
