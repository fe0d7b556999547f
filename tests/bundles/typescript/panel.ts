// A text is read by three critics side by side, in one step, until they agree. It is bundled by esbuild into one file.

import { z } from "zod";
import type { Input, Options, Step } from "./contract";
import { Draft, Opinion, Panel, roles, VIEWS } from "./roles";

export const descriptor = {
  name: "panel",
  description: "A writer, and a panel of critics.",
  roles: Object.fromEntries(
    Object.entries(roles).map(([name, role]) => [name, { ...role, schema: z.toJSONSchema(role.schema) }]),
  ),
  maxRounds: 8,
};

async function write(options: Options): Promise<Step> {
  const content = await options.agents.default({ role: "writer" });
  const meta = Draft.parse(await options.extract(z.toJSONSchema(Draft), "The text.", { agentContent: content, role: "writer" }));
  return { role: "writer", content, meta, timestamp: Date.now() };
}

async function read(text: string, options: Options): Promise<Step> {
  const schema = z.toJSONSchema(Opinion);
  const opinions = await Promise.all(
    VIEWS.map(async (view) => {
      const said = await options.agents.critic({ prompt: `Read this as ${view}:\n\n${text}`, schema });
      return { view, ...Opinion.parse(await options.extract(schema, "The opinion.", said)) };
    }),
  );
  const meta = Panel.parse({ opinions, approved: opinions.every((each) => each.score > 2) });
  const content = opinions.map((each) => `- ${each.view}: ${each.reason}`).join("\n");
  return { role: "panel", content, meta, timestamp: Date.now() };
}

export async function* run(input: Input, options: Options): AsyncGenerator<Step, { drafts: number }> {
  const steps = [...input.steps];
  for (;;) {
    const last = steps.at(-1);
    if (last?.role === "panel" && last.meta.approved) break;
    const step = last?.role === "writer" ? await read(String(last.meta.text), options) : await write(options);
    yield step;
    steps.push(step);
  }
  return { drafts: steps.filter((step) => step.role === "writer").length };
}
