// Elements of pages.

export const OWN = "[data-live-own]"; // elements whose scripts change them

export const content = () => document.getElementById("content");

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
