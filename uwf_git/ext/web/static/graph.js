// The graph of a workflow: laid out by dagre, drawn here. Which role's turn it is shows by a second outline and a word,
// the ways that were taken by a full line and a number. It takes the room of the drawing that came with the page, so that
// nothing below it moves.

import { element as html } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const LONGEST = 30; // characters of a label
const READABLE = 0.8; // of the size that it is drawn in
const WIDE = 640; // pixels of a box in which it is drawn from left to right

const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function measure(box) {
  const context = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(box).fontFamily;
  return (text, size, weight = 400) => {
    context.font = `${weight} ${size}px ${family}`;
    return context.measureText(text).width;
  };
}

// Draws what the data of a box say; what stood in it stays where that fails.
export async function draw(box) {
  box.dataset.live = box.dataset.drawn = "1";
  const said = box.dataset.graph;
  const { name, nodes, ways } = JSON.parse(said);
  const width = measure(box);
  const sized = nodes.map((node) => {
    const title = shortened(node.label, LONGEST), under = below(node);
    const wide = Math.max(width(title, 14, 600), width("next · 99×", 12)) + 28;
    return { ...node, title, under, width: Math.max(wide, node.end ? 64 : 96), height: node.end ? 32 : 46 };
  });
  const labelled = ways.map((way) => {
    const text = [shortened(way.label, LONGEST), way.times ? `${way.times}×` : ""].filter(Boolean).join(" · ");
    // With room for a number also where there is none yet: it comes while somebody looks.
    return { ...way, text, wide: width(text, 12), width: width(way.times ? text : `${text} · 9×`, 12) + 12, height: 18 };
  });
  const direction = box.clientWidth >= WIDE ? "LR" : "TB";
  const placed = await placesOf(sized, labelled, direction);
  if (box.dataset.graph !== said) return; // it is being drawn anew
  const picture = element("svg", { class: "graph laid", viewBox: `0 0 ${placed.width} ${placed.height}`, role: "group", "aria-label": `The graph of ${name}` });
  picture.append(marker("to"), marker("to-was"));
  const boxes = new Map(sized.map((node, index) => [node.id, { ...node, ...placed.nodes[index] }]));
  labelled.forEach((way, index) => picture.append(path(way, placed.ways[index], boxes.get(way.source), direction)));
  sized.forEach((node, index) => picture.append(drawnNode(node, placed.nodes[index])));
  labelled.forEach((way, index) => way.text && picture.append(label(way, placed.ways[index])));
  framed(box, picture, placed);
}

function placesOf(nodes, ways, direction) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./layout.js", import.meta.url), { type: "module" });
    const done = (act) => (event) => {
      worker.terminate();
      act(event);
    };
    worker.onmessage = done(({ data }) => resolve(data));
    worker.onerror = done(reject);
    worker.postMessage({
      direction,
      nodes: nodes.map(({ id, width, height }) => ({ id, width, height })),
      ways: ways.map(({ source, target, width, height }) => ({ source, target, width, height })),
    });
  });
}

function below({ turn, times, end }) {
  return end ? "" : [turn, times ? `${times}×` : ""].filter(Boolean).join(" · ");
}

function marker(id) {
  return element("marker", { id, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 11, markerHeight: 11, markerUnits: "userSpaceOnUse", orient: "auto" },
    element("path", { class: id === "to" ? "tip" : "tip-was", d: "M0 1L9.5 5L0 9L2.5 5z" }));
}

// A curve through what dagre says, smooth where it turns. A way to its own node is a loop beside that.
function path(way, { points, x: middle, y: level }, node, direction) {
  if (way.source === way.target && direction === "LR") {
    const x = node.x, y = node.y + node.height / 2, out = y + Math.max(24, level - way.height / 2 - y) * 1.3;
    return arrow(way, `M${x - 12} ${y}C${x - 30} ${out} ${x + 30} ${out} ${x + 12} ${y}`);
  }
  if (way.source === way.target) {
    const x = node.x + node.width / 2, y = node.y, out = x + Math.max(24, middle - way.width / 2 - x) * 1.3;
    return arrow(way, `M${x} ${y - 9}C${out} ${y - 24} ${out} ${y + 24} ${x} ${y + 9}`);
  }
  const at = points.map(({ x, y }) => [Math.round(x * 10) / 10, Math.round(y * 10) / 10]);
  let d = `M${at[0]}`;
  for (let index = 1; index < at.length - 1; index += 1) {
    const [x, y] = at[index], [nextX, nextY] = at[index + 1];
    const to = index === at.length - 2 ? [nextX, nextY] : [(x + nextX) / 2, (y + nextY) / 2];
    d += `Q${x} ${y} ${to[0]} ${to[1]}`;
  }
  if (at.length === 2) d += `L${at[1]}`;
  return arrow(way, d);
}

function arrow(way, d) {
  return element("path", { class: way.times ? "way was" : "way", d, "marker-end": `url(#${way.times ? "to-was" : "to"})` });
}

function label(way, { x, y }) {
  const plate = element("rect", { class: "plate", x: x - way.wide / 2 - 3, y: y - 8, width: way.wide + 6, height: 16 });
  const text = element("text", { class: way.times ? "label was" : "label", x, y: y + 4, "text-anchor": "middle" }, way.text);
  if (way.label.length > LONGEST) text.prepend(element("title", {}, way.label));
  return element("g", {}, plate, text);
}

function drawnNode(node, { x, y }) {
  const left = x - node.width / 2, top = y - node.height / 2;
  const shape = { x: left, y: top, width: node.width, height: node.height, rx: node.end ? node.height / 2 : 9 };
  const group = node.href ? element("a", { href: node.href, class: "goes" }) : element("g");
  group.append(element("title", {}, node.under ? `${node.label}: ${node.under}` : node.label));
  if (node.now) group.append(element("rect", { class: "halo", x: left - 4, y: top - 4, width: node.width + 8, height: node.height + 8, rx: shape.rx + 4 }));
  group.append(element("rect", { class: `node${node.times ? " was" : ""}${node.now ? " now" : ""}`, ...shape }));
  group.append(element("text", { class: "name", x, y: node.under ? y - 2 : y + 5, "text-anchor": "middle" }, node.title));
  if (node.under) group.append(element("text", { class: "under", x, y: y + 15, "text-anchor": "middle" }, node.under));
  return group;
}

// Puts the picture into a frame that scrolls, with buttons to make it larger and smaller.
function framed(box, picture, { width, height }) {
  const old = box.querySelector(".frame");
  const label = "Graph; plus and minus make it larger and smaller, 0 fits it in";
  const frame = html("div", { class: "frame", tabindex: "0", role: "region", "aria-label": label }, picture);
  const most = box.classList.contains("large") ? 1.75 : 1;
  const fits = () => Math.min(most, (frame.clientWidth - 2) / width, (frame.clientHeight - 2) / height);
  let scale = 1;
  const zoom = (to) => {
    const middle = [(frame.scrollLeft + frame.clientWidth / 2) / scale, (frame.scrollTop + frame.clientHeight / 2) / scale];
    scale = Math.min(3, Math.max(0.05, to));
    box.dataset.scale = scale;
    picture.setAttribute("width", Math.round(width * scale));
    picture.setAttribute("height", Math.round(height * scale));
    frame.scrollLeft = middle[0] * scale - frame.clientWidth / 2;
    frame.scrollTop = middle[1] * scale - frame.clientHeight / 2;
    shown.textContent = `${Math.round(scale * 100)} %`;
  };
  const steps = { "+": () => zoom(scale * 1.25), "-": () => zoom(scale / 1.25), 0: () => zoom(fits()) };
  frame.addEventListener("keydown", (event) => {
    const act = steps[event.key === "=" ? "+" : event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  const shown = html("span");
  const button = (text, name, key) => {
    const node = html("button", { type: "button", "aria-label": name }, text);
    node.addEventListener("click", steps[key]);
    return node;
  };
  const large = html("button", { type: "button" }, box.classList.contains("large") ? "Close" : "Enlarge");
  large.addEventListener("click", () => enlarge(box));
  const buttons = [large, button("−", "Smaller", "-"), shown, button("+", "Larger", "+"), button("Fit", "Fit the graph in", 0)];
  const bar = html("div", { class: "zoom" }, ...buttons);
  const at = old && [old.scrollLeft, old.scrollTop];
  const focused = box.contains(document.activeElement);
  if (!box.style.height && !box.classList.contains("whole")) box.style.height = `${box.getBoundingClientRect().height}px`;
  box.classList.add("framed");
  box.replaceChildren(bar, frame);
  if (box.classList.contains("whole") && !box.classList.contains("large")) {
    // As high as it needs: nothing of this page is read before its graph.
    const needed = height * Math.max(READABLE, Math.min(1, (frame.clientWidth - 2) / width)) + 4;
    box.style.height = `${bar.offsetHeight + 10 + Math.min(needed, innerHeight * 0.75)}px`;
  }
  zoom(Number(box.dataset.scale) || Math.max(READABLE, fits()));
  if (focused) frame.focus({ preventScroll: true });
  if (at) [frame.scrollLeft, frame.scrollTop] = at;
  else toNow(frame, picture);
}

// The whole window for the graph, or its place in the page again.
function enlarge(box) {
  box.classList.toggle("large");
  delete box.dataset.scale;
  box.querySelector(".frame")?.remove();
  draw(box).then(() => box.querySelector(".zoom button").focus({ preventScroll: true }));
}

addEventListener("keydown", (event) => {
  const box = document.querySelector("#graph.large");
  if (event.key === "Escape" && box) enlarge(box);
});

function toNow(frame, picture) {
  const now = picture.querySelector(".node.now") ?? picture.querySelector(".node");
  if (!now) return;
  const inside = now.getBoundingClientRect(), around = frame.getBoundingClientRect();
  frame.scrollTop += inside.top - around.top - (frame.clientHeight - inside.height) / 2;
  frame.scrollLeft += inside.left - around.left - (frame.clientWidth - inside.width) / 2;
}
