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

TURNS = """\
const process_ = Math.random();

export const descriptor = {
  name: "turns",
  description: "Two roles take turns, and one of them may ask.",
  roles: {
    maker: {
      description: "makes it",
      schema: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
    },
    judge: { description: "says what it thinks", schema: { type: "object", properties: { n: { type: "integer" } } } },
  },
  graph: {
    edges: [
      { from: "__start__", to: "maker" },
      { from: "maker", to: "judge" },
      { from: "judge", to: "__end__" },
    ],
  },
};

export async function* run({ prompt, steps }, { threadId, maxRounds }) {
  const past = [...steps];
  while (past.length < 4) {
    const role = past.length % 2 ? "judge" : "maker";
    const content = JSON.stringify({ process_, threadId, maxRounds: `${maxRounds}`, heard: steps });
    const asks = prompt === "ask" && past.length === 1;
    const step = { role, content, meta: asks ? { $status: "$SUSPEND", question: "Go on?" } : { n: past.length } };
    yield step;
    past.push(step);
  }
  const answers = steps.filter(({ role }) => role === "$USER").map(({ content }) => content);
  return { summary: `${past.length} steps`, answers };
}
"""
"""Four steps by two roles, of which each tells what the code was given and which process it runs in, and a result. With
the task "ask" the second step asks a human."""
