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

DUET = """\
from uwf_git.workflow import define

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def next_role(ctx):
    if len(ctx.steps) == 4:
        return None
    return "critic" if ctx.steps and ctx.steps[-1]["role"] == "writer" else "writer"


workflow = define(
    name="duet",
    description="One writes, one criticises.",
    roles={
        "writer": {"description": "writes", "systemPrompt": "Write.", "schema": TEXT},
        "critic": {"description": "criticises", "schema": TEXT},
    },
    moderator=next_role,
    graph=[{"from": "writer", "to": "critic"}, {"from": "critic", "to": "writer", "condition": "again"}],
    max_rounds=9,
)
"""
"""Four steps of two roles that agents play, said by roles and a moderator."""

COUNTDOWN = """\
import asyncio

descriptor = {
    "name": "countdown",
    "description": "Counts down from three.",
    "roles": {"counter": {"description": "counts", "schema": {"type": "object"}}},
}


async def run(input, options):
    for number in range(3 - len(input["steps"]), 0, -1):
        await asyncio.sleep(0)
        yield {"role": "counter", "content": f"{number}!", "meta": {"number": number}}
    options.finish({"counted": len(input["steps"])})
"""
"""Three steps that are code alone, and a result."""
