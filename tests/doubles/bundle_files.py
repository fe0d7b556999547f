"""Bundles that tests register: files of code as their authors write them."""

from __future__ import annotations

DEBATE = """\
import { createHash } from "node:crypto";

const schema = {
  type: "object",
  properties: { text: { type: "string" } },
  required: ["text"],
  additionalProperties: false,
};

export const descriptor = {
  name: "debate",
  description: "Two sides argue until one of them has had enough.",
  roles: {
    pro: { description: "argues for it", systemPrompt: "Argue for it.", schema },
    con: { description: "argues against it", schema },
  },
  graph: {
    edges: [
      { from: "__start__", to: "pro", condition: "FALLBACK" },
      { from: "pro", to: "con", condition: "FALLBACK" },
      { from: "con", to: "pro", condition: "not yet enough" },
      { from: "con", to: "__end__", condition: "FALLBACK" },
    ],
  },
  maxRounds: 6,
};

export async function* run(input, options) {
  for (let round = input.steps.length; round < 4; round += 1) {
    const role = round % 2 ? "con" : "pro";
    const text = createHash("sha256").update(`${input.prompt} ${round}`).digest("hex");
    yield { role, content: text, meta: { text }, timestamp: Date.now() };
  }
  return { rounds: 4 };
}
"""
"""Four steps that follow from the prompt, by two roles in turn, and a result."""
