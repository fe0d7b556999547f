// What is being read stays where it is while a page changes: what is in view is neither removed nor pushed away.

import { content, OWN } from "./dom.js";
import { copyState, FIELDS, isDirty } from "./fields.js";

const ADDED = "[data-live-added]"; // elements that scripts added
const BLOCKS = "address, article, aside, blockquote, dd, details, div, dl, dt, fieldset, figure, footer, form, h1, h2, h3, h4, h5,"
  + " header, hr, li, main, nav, ol, p, pre, section, table, tbody, td, th, thead, tr, ul";
const STUCK = ".answer-bar"; // at the edge of the window: what comes before it moves nothing
const YIELDS = "#nothing, [data-live-yields]"; // says that there is nothing, until there is
export const ROW = "li[id], tr[id], [data-rows] > [id]";
const LISTED = "[data-rows] > [id^='t-']";

// Makes a new element leave alone what is in view in the old one: its blocks stay, in their order, and none comes
// between them. Blocks that are only more of a list's are added. What is `data-live-whole` changes at once.
export function hold(old, now, held) {
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
  let sibling = node.previousElementSibling;
  while (sibling && !later.has(keys.get(sibling))) sibling = sibling.previousElementSibling;
  return sibling && later.get(keys.get(sibling));
}

// Puts the blocks that stay into their order. New ones before and among them are held back, those behind are added.
function between(old, now, places, keys, others, held) {
  const inFlow = places.filter((node) => !node.matches(STUCK));
  const all = [...now.children], indexes = (inFlow.length ? inFlow : places).map((node) => all.indexOf(node)).filter((index) => index >= 0);
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
export function anchored(change) {
  const chain = anchors();
  change();
  const [node, top] = chain.find(([link]) => link.isConnected && link.getClientRects().length) ?? [];
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
  for (let box = node; box && box !== document.body; box = box.parentElement)
    if (/fixed|sticky/.test(getComputedStyle(box).position)) return true;
  return false;
}

function scrollerOf(node) {
  for (let box = node.parentElement; box && box !== document.body; box = box.parentElement)
    if (/auto|scroll/.test(getComputedStyle(box).overflowY) && box.scrollHeight > box.clientHeight) return box;
  return window;
}
