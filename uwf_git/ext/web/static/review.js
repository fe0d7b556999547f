// Comments on the lines of a diff that waits for an answer. They are kept as `path:line: text` in a field of the answer's
// form, which is sent, kept and given back as other typed text is; the list and the marks only show that field.

import { element } from "./dom.js";
import { draftOf, keep } from "./drafts.js";

const FIELD = "textarea[name=comments]";
const LINES = ".evidence .diff[data-path] .number a";
const COMMENT = /^("(?:[^"\\]|\\.)*"|[^:"]*):(\d+( \(removed\))?): (.*)$/; // as comment_path writes paths
const LONGEST = 2000; // characters of a comment

const field = () => document.querySelector(FIELD);
const comments = () => field().value.split("\n").filter(Boolean);

// Shows what the field has.
export function show() {
  const list = document.querySelector(".comments");
  if (!list || !field()) return;
  const isOpen = !field().form.querySelector("button:not([type=button]):not([hidden])")?.disabled;
  const rows = comments().map((line, index) => {
    const [, path, number, , text] = COMMENT.exec(line) ?? [null, "", "", "", line];
    const place = path ? `${path}:${number}` : "the answer";
    const edit = element("button", { type: "button", "data-comment": index, "data-do": "edit", "aria-label": `Edit the comment on ${place}` }, "Edit");
    const remove = element("button", { type: "button", "data-comment": index, "data-do": "remove", "aria-label": `Remove the comment on ${place}` }, "Remove");
    edit.disabled = remove.disabled = !isOpen;
    return element("li", {}, element("code", {}, place), element("span", {}, ` – ${text}`), " ", edit, " ", remove);
  });
  const begin = element("button", { type: "button", class: "begin", "data-key": "c", "data-key-label": "comment on a line" },
    element("kbd", { "aria-hidden": "true" }, "c"), " Comment on a line");
  begin.disabled = !isOpen;
  const state = JSON.stringify([isOpen, comments()]);
  if (list.firstElementChild?.dataset.state !== state)
    list.replaceChildren(element("div", { "data-live-added": "", "data-state": state }, ...(rows.length ? [element("ol", {}, ...rows)] : []), begin));
  list.hidden = !document.querySelector(LINES);
  const answer = field().form.elements.answer;
  if (answer.required || answer.dataset.required) {
    answer.dataset.required = "1";
    answer.required = !rows.length;
  }
  const places = new Set(comments().map((line) => COMMENT.exec(line)?.slice(1, 3).join(":")));
  for (const link of document.querySelectorAll(LINES)) {
    link.tabIndex = -1; // `c` leads to them, and from there j and k
    link.closest("tr").toggleAttribute("data-commented", places.has(placeOf(link)));
  }
}

// The path and the line of a number: that of the new file, unless the line was removed.
function placeOf(link) {
  const row = link.closest("tr"), numbers = row.querySelectorAll(".number");
  const text = (row.matches(".del") ? numbers[0] : numbers[1]).textContent;
  return `${link.closest(".diff").dataset.path}:${text}${row.matches(".del") ? " (removed)" : ""}`;
}

function put(list) {
  field().value = list.join("\n");
  keep(field());
  show();
}

// The box in which a comment is written. It is no part of what the page shows, so no change of that touches it.
const words = element("input", { name: "comment", maxlength: LONGEST, autocomplete: "off", "aria-labelledby": "comment-place" });
const place = element("code", { id: "comment-place" });
const save = element("button", { type: "button", class: "main" }, "Comment");
const cancel = element("button", { type: "button" }, "Cancel");
const note = element("p", { role: "alert" });
const box = element("dialog", { id: "comment", "data-live-own": "", "aria-labelledby": "comment-place" },
  element("p", {}, place), words, note, element("p", { class: "do" }, save, cancel));
document.body.append(box);
let target = null; // the field that it is for
let edited = null; // the comment that is changed
let origin = null; // the number at which a new one is begun

function write(at, text, line, from) {
  words.dataset.draft = `${field().form.getAttribute("action")}|${field().closest("[data-asks]").dataset.asks}|${at}|${line ?? ""}`;
  [place.textContent, words.value, note.textContent] = [at, draftOf(words) ?? text, ""];
  [target, edited, origin] = [field(), line, from];
  box.showModal();
  const { bottom } = from.getBoundingClientRect(), { left } = (from.closest("details") ?? from.closest("form")).getBoundingClientRect();
  box.style.left = `${Math.max(8, Math.min(left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.min(bottom + 4, innerHeight - box.offsetHeight - 8)}px`;
}

cancel.addEventListener("click", () => box.close());
save.addEventListener("click", done);
words.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing) return;
  event.preventDefault();
  done();
});

function done() {
  if (!target.isConnected) {
    note.textContent = "This was answered elsewhere. What you typed stays here to be copied.";
    return;
  }
  const text = words.value.replace(/\s+/g, " ").trim(), list = comments();
  const line = `${place.textContent}: ${text}`, index = edited === null ? -1 : list.indexOf(edited);
  if (index >= 0) list.splice(index, 1, ...(text ? [line] : []));
  else if (text) list.push(line);
  put(list);
  box.close();
}

box.addEventListener("close", () => {
  words.value = "";
  keep(words);
  const back = origin?.isConnected ? origin : document.querySelector(".comments .begin");
  if (!document.activeElement.matches("input, textarea")) back?.focus({ preventScroll: true }); // it may come late
});

const isShown = (link) => link.checkVisibility();
const lines = () => {
  const rows = new Map();
  for (const link of document.querySelectorAll(LINES)) if (isShown(link)) rows.set(link.closest("tr"), link);
  return [...rows.values()]; // the last number of each line
};

// The first line in the window, else the first.
function begin() {
  const focus = document.activeElement;
  if (focus.matches(LINES)) {
    write(placeOf(focus), "", null, focus);
    return;
  }
  if (!lines().length) document.querySelector(LINES).closest("details").open = true;
  const list = lines();
  go(list.find(isClear) ?? list[0]);
}

// What the heads and the answer leave free of the window.
const TOP = 120; // pixels
const bottom = () => Math.min(innerHeight, document.querySelector(".answer-bar")?.getBoundingClientRect().top ?? innerHeight);

function isClear(link) {
  const box = link.getBoundingClientRect();
  return box.top > TOP && box.bottom < bottom();
}

function go(link) {
  link?.focus({ preventScroll: true });
  if (link && !isClear(link)) scrollBy({ top: link.getBoundingClientRect().top - (TOP + bottom()) / 2, behavior: "instant" });
}

document.addEventListener("click", (event) => {
  if (!field() || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const link = event.target.closest?.(LINES), button = event.target.closest?.("[data-comment]");
  if (link && !field().form.querySelector("button:not([type=button]):not([hidden])")?.disabled) {
    event.preventDefault();
    event.stopPropagation();
    write(placeOf(link), "", null, link);
  } else if (button) {
    const list = comments(), line = list[button.dataset.comment];
    const [, path, number, , text] = COMMENT.exec(line) ?? [];
    if (button.dataset.do === "remove") {
      put(list.filter((comment) => comment !== line));
      document.querySelector(".comments button").focus();
    } else if (path) write(`${path}:${number}`, text, line, button);
  } else if (event.target.closest?.(".comments .begin")) begin();
}, true);

// From line to line.
document.addEventListener("keydown", (event) => {
  const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (!by || !event.target.matches?.(LINES) || !field() || event.ctrlKey || event.metaKey || event.altKey) return;
  const list = lines(), at = list.findIndex((link) => link.closest("tr") === event.target.closest("tr"));
  event.preventDefault();
  event.stopPropagation();
  go(list[at + by]);
}, true);
