// Shows outputs of any length in a box that scrolls through all their lines, of which only those in view are in the
// document. They come from the server by range, as HTML.

import { element } from "./dom.js";

const HEIGHT = 18; // pixels of a line, as in output.css
const TALLEST = 12e6; // pixels; browsers draw nothing beyond 17 million
const BLOCK = 200; // lines of a request
const KEPT = 100; // blocks
const AROUND = 20; // lines drawn above and below those in view

const shown = new WeakSet();

export function show() {
  for (const box of document.querySelectorAll("[data-lines]")) {
    if (shown.has(box)) continue;
    shown.add(box);
    view(box);
  }
}

function view(box) {
  box.dataset.liveOwn = "";
  const address = box.dataset.lines;
  let total = Number(box.dataset.total);
  const blocks = new Map(); // lines by the number of their block, or null while they are requested
  const code = box.querySelector("pre code"), pre = code.parentElement;
  const seed = Number(box.dataset.first);
  const spacer = element("div", { class: "spacer" });
  pre.classList.add("viewer");
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", "Lines of the output");
  box.querySelectorAll("[rel=prev], [rel=next]").forEach((link) => link.remove());
  pre.replaceChildren(spacer, code);
  const first = [...code.children]; // the lines that came with the page

  // Where a line is, in pixels: evenly, or squeezed if there are more than a browser can draw.
  const height = () => Math.min(TALLEST, total * HEIGHT);
  const inView = () => Math.ceil(pre.clientHeight / HEIGHT);
  const lineAt = (top) => {
    const room = height() - pre.clientHeight;
    return room <= 0 ? 1 : 1 + Math.floor(total * HEIGHT <= TALLEST ? top / HEIGHT : (top / room) * Math.max(0, total - inView()));
  };
  const topOf = (line) => {
    if (total * HEIGHT <= TALLEST) return (line - 1) * HEIGHT;
    return ((line - 1) / Math.max(1, total - inView())) * (height() - pre.clientHeight);
  };

  let drawn = "", marked = 0, requests = 0;

  async function load(number) {
    if (blocks.has(number) || requests > 3) return;
    blocks.set(number, null);
    requests += 1;
    try {
      const answer = await fetch(`${address}?from=${number * BLOCK + 1}&to=${(number + 1) * BLOCK}`);
      if (!answer.ok) throw new Error(answer.status);
      const page = await answer.json();
      const part = element("template");
      part.innerHTML = page.html; // which the server escaped
      blocks.set(number, [...part.content.children]);
      if (page.total !== total) {
        total = page.total;
        spacer.style.height = `${height()}px`;
      }
      while (blocks.size > KEPT) {
        const [oldest] = blocks.keys();
        blocks.delete(oldest);
      }
    } catch {
      blocks.delete(number);
      setTimeout(draw, 1000);
      return;
    } finally {
      requests -= 1;
    }
    drawn = "";
    requestAnimationFrame(draw);
  }

  function lineOf(number) {
    const block = blocks.get(Math.floor((number - 1) / BLOCK));
    if (block) return block[(number - 1) % BLOCK];
    return first[number - seed];
  }

  function draw() {
    const place = pre.scrollTop; // read before anything changes: later, it would be laid out for that
    const top = lineAt(place), last = Math.min(total, top + inView() + AROUND), begin = Math.max(1, top - AROUND);
    const rows = [];
    const missing = new Set();
    for (let number = begin; number <= last; number += 1) {
      const row = lineOf(number);
      if (row) rows.push(row);
      else {
        rows.push(element("span", { class: "line" }, element("span", { "data-n": number, "aria-hidden": "true" }), "\n"));
        missing.add(Math.floor((number - 1) / BLOCK));
      }
    }
    for (const number of missing) load(number);
    const state = `${begin} ${last} ${missing.size} ${marked}`;
    if (state === drawn) return;
    drawn = state;
    code.querySelector(".found")?.classList.remove("found");
    code.replaceChildren(...rows);
    if (marked) lineOf(marked)?.classList.add("found");
    code.style.top = `${place - (top - begin) * HEIGHT - (total * HEIGHT <= TALLEST ? place % HEIGHT : 0)}px`;
  }

  function go(line) {
    marked = line;
    pre.scrollTop = topOf(Math.max(1, line - Math.floor(inView() / 3)));
    draw();
  }

  spacer.style.height = `${height()}px`;
  let waits = false;
  pre.addEventListener("scroll", () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      draw();
    });
  }, { passive: true });
  new ResizeObserver(() => {
    drawn = "";
    draw();
  }).observe(pre);
  const wanted = () => Number(/^#L([1-9][0-9]{0,8})$/.exec(location.hash)?.[1] ?? 0);
  addEventListener("hashchange", () => {
    if (box.isConnected && wanted() && wanted() !== marked) go(Math.min(wanted(), total));
  });
  pre.addEventListener("click", (event) => {
    const number = event.target.closest("[data-n]")?.dataset.n;
    if (!number) return;
    event.preventDefault(); // what is read stays in its place
    history.replaceState(history.state, "", `#L${number}`);
    marked = Number(number);
    draw();
  });
  finder(box, address, go);
  if (wanted()) go(Math.min(wanted(), total));
  else {
    pre.scrollTop = height();
    draw();
  }
}

// A field that finds words in all lines, and goes through the matches.
function finder(box, address, go) {
  const field = element("input", { type: "search", placeholder: "Find", "aria-label": "Find in the output", "data-key": "/", "data-key-label": "find in the output" });
  const state = element("span", { class: "meta", role: "status" });
  const button = (text, label, act) => {
    const node = element("button", { type: "button", "aria-label": label }, text);
    node.addEventListener("click", act);
    return node;
  };
  let matches = [], at = -1, words = "";
  const step = (by) => {
    if (!matches.length) return;
    at = (at + by + matches.length) % matches.length;
    go(matches[at]);
    state.textContent = `${at + 1} of ${matches.length.toLocaleString("en")}`;
  };
  async function find(by) {
    if (field.value === words) {
      step(by);
      return;
    }
    words = field.value;
    matches = [];
    state.textContent = "";
    if (!words) return;
    const answer = await fetch(`${address}?find=${encodeURIComponent(words)}`);
    if (!answer.ok) return;
    matches = (await answer.json()).found;
    at = by > 0 ? -1 : 0;
    if (matches.length) step(by);
    else state.textContent = "not found";
  }
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    find(event.shiftKey ? -1 : 1);
  });
  const bar = box.querySelector(".output-bar") ?? box.insertBefore(element("p", { class: "output-bar" }), box.firstChild);
  bar.querySelector(".meta")?.replaceChildren(`${Number(box.dataset.total).toLocaleString("en")} lines`);
  const finding = element("span", { class: "finder" }, field, button("↑", "The one before", () => find(-1)), button("↓", "The next one", () => find(1)), state,
    button("Top", "The first line", () => go(1)), button("End", "The last line", () => go(Number(box.dataset.total))));
  bar.insertBefore(finding, bar.querySelector(".raw"));
}
