// Fields that somebody has typed in: their values outlast the changes of a page.

import { OWN } from "./dom.js";

export const FIELDS = "input:not([type=hidden], [type=submit], [type=button]), textarea, select";
const KEYED = "form, details, section, button, input, textarea, select";

export function isDirty(field) {
  if (field.readOnly) return false;
  if (/^(checkbox|radio)$/.test(field.type)) return field.checked !== field.defaultChecked;
  if (field.options) return field.dataset.liveTyped === "1";
  return field.value !== field.defaultValue;
}

export const valueOf = (field) => (/^(checkbox|radio)$/.test(field.type) ? field.checked : field.value);

export function restore(field, value) {
  if (/^(checkbox|radio)$/.test(field.type)) field.checked = value;
  else if (field.value !== value) field.value = value;
  if (field.options) field.dataset.liveTyped = "1";
}

export function copyState(from, to) {
  if (to && from.type !== "file") restore(to, valueOf(from));
}

addEventListener("change", ({ target }) => {
  if (target.options) target.dataset.liveTyped = "1";
}, true);

// The question that an element belongs to.
export const questionOf = (node) => node.closest("[data-asks]")?.dataset.asks ?? node.closest(".asks")?.querySelector(".task")?.textContent ?? "";

// Gives elements that have state a name by which morphing finds them again: a field belongs to its form, and the answer
// to a question to that question.
export function identify(root) {
  const names = new Map();
  for (const node of root.querySelectorAll(KEYED)) {
    if ((node.id && !node.id.startsWith("live:")) || node.closest(OWN)) continue;
    const asks = questionOf(node);
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
