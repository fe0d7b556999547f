// What was typed and not yet sent, by its place: the form's address, the question and the field. It is kept as it is typed,
// for as long as the tab is open, and given back wherever its place is shown.

import { content, element } from "./dom.js";
import { FIELDS, isDirty, questionOf, restore, valueOf } from "./fields.js";

const STORED = "uwf.drafts"; // in the storage of the tab: drafts by place, the oldest first
const MOST = 200; // drafts
const LARGEST = 2_000_000; // characters of all of them; one has at most half
const UNKEPT = "[type=password], [type=file], [name=token], [autocomplete$=password], [autocomplete=one-time-code], [type=checkbox][required]";
const TEXT = /^(text|textarea|search)$/;

const drafts = read();

function read() {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(STORED)) ?? []);
  } catch {
    return new Map(); // this browser keeps nothing, or something else does
  }
}

function write() {
  let text = JSON.stringify([...drafts]);
  while (drafts.size > MOST || (drafts.size && text.length > LARGEST)) {
    drafts.delete(drafts.keys().next().value);
    text = JSON.stringify([...drafts]);
  }
  try {
    sessionStorage.setItem(STORED, text);
  } catch {
    // They last as long as the page.
  }
}

const formOf = (field) => (field.form?.method === "post" ? field.form.getAttribute("action") : null);

// A page that the browser had put aside doesn't know what was typed since.
addEventListener("pageshow", ({ persisted }) => {
  if (!persisted) return;
  drafts.clear();
  for (const [place, draft] of read()) drafts.set(place, draft);
});

function placeOf(field) {
  if (field.dataset.draft) return field.dataset.draft;
  const value = /^(checkbox|radio)$/.test(field.type) ? field.value : "";
  return [formOf(field) ?? location.pathname + location.search, questionOf(field), field.name || field.id, value].map((part) => part.slice(0, 300)).join("|");
}

// What a form sends, by its places.
export const placesOf = (form) => [...form.elements].filter((field) => field.matches(FIELDS)).map(placeOf);

// Keeps what a field has now, or forgets it if that is what the page gave it.
export function keep(field) {
  if (field.matches(UNKEPT)) return;
  const place = placeOf(field), thread = /^\/thread\/([^/]+)\//.exec(formOf(field))?.[1];
  drafts.delete(place);
  if (isDirty(field) && field.value.length <= LARGEST / 2) drafts.set(place, { thread, isAnswer: questionOf(field) !== "", isText: TEXT.test(field.type), value: valueOf(field) });
  write();
}

export function forget(places) {
  for (const place of places) drafts.delete(place);
  write();
}

for (const kind of ["input", "change"]) addEventListener(kind, ({ target }) => {
  if (target.matches?.(FIELDS) && (target.name || target.id)) keep(target);
});
addEventListener("submit", ({ target }) => {
  if (target.getAttribute("action") === "/sign-out") forget([...drafts.keys()]);
}, true);

export const draftOf = (field) => drafts.get(placeOf(field))?.value;

// What is shown: its fields by place, and the rows of questions in the inbox.
function shown() {
  const fields = [...content().querySelectorAll(FIELDS)].filter((field) => (field.name || field.id) && !field.readOnly && !field.matches(UNKEPT));
  const rows = [...content().querySelectorAll(".queue li[data-group=asks]")].map((row) => row.id);
  return { fields: new Map(fields.map((field) => [placeOf(field), field])), rows };
}

const isListed = ({ rows }, { thread, isAnswer }) => isAnswer && rows.some((id) => id.startsWith(`q-${thread}`));
const words = (name) => new URLSearchParams(location.search).get(name);
const page = () => location.pathname + (words("for") ?? "");
let last = null;

// Whether the page is the one on which a draft has its place, if it has any.
function isAbout({ thread, isAnswer }) {
  if (location.pathname === `/thread/${thread}`) return true;
  return isAnswer && location.pathname === "/" && (words("at") === thread || content().querySelector(`[id^="item-${thread}"]`) !== null);
}

// Gives what was typed back to the fields of a page after `change`. A draft has no place any more once the page that it
// belongs to is without it, and an answer once its row has left the inbox.
export function giveBack(change) {
  const before = drafts.size ? shown() : null;
  change();
  const now = drafts.size ? shown() : null, stays = last === page();
  last = page();
  for (const [place, draft] of drafts) {
    const field = now.fields.get(place);
    if (field) {
      if (valueOf(field) !== draft.value) restore(field, draft.value);
      for (let box = field.closest("form details"); box; box = box.parentElement.closest("form details")) box.open = true; // none is sent unseen
    }
    const had = before?.fields.has(place) || (before && isListed(before, draft));
    draft.isGone = !field && draft.thread !== undefined && (draft.isGone || isAbout(draft) || (stays && had && !isListed(now, draft)));
    if (draft.isGone && !draft.isText) drafts.delete(place);
  }
  if (drafts.size) write(); // also those that have no place
  showGone();
}

// Typed text that has no place any more, to be copied.
let box = null;
function showGone() {
  const thread = content().querySelector("[data-thread]")?.dataset.thread, isInbox = content().querySelector(".inbox");
  const gone = [...drafts].filter(([, draft]) => draft.isGone && (isInbox || draft.thread === thread));
  const state = JSON.stringify(gone);
  if (box?.dataset.state !== state) {
    box?.remove();
    const done = element("button", { type: "button" }, "Let go of it");
    done.addEventListener("click", () => {
      forget(gone.map(([place]) => place));
      box.remove();
    });
    const copies = gone.map(([, { value }]) => {
      const copy = element("textarea", { readonly: "", rows: "3", "aria-label": "What you had typed" });
      copy.value = value;
      return copy;
    });
    box = element("section", { id: "live-left", class: "notice left", "data-live-own": "", "data-live-added": "", "data-state": state },
      element("p", {}, "What you had typed has no place here any more. It is kept until you let go of it:"), ...copies, done);
  }
  if (!gone.length) box.remove();
  else if (!box.isConnected) (content().querySelector(".answer-bar") ?? content()).prepend(box);
}
