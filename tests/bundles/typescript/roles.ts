import { z } from "zod";

export const Draft = z.object({ text: z.string().min(1) });
export const Opinion = z.object({ score: z.number().int().min(1).max(5), reason: z.string() });
export const Panel = z.object({ opinions: z.array(Opinion.extend({ view: z.string() })), approved: z.boolean() });

export const VIEWS = ["a lawyer", "a newcomer", "an editor"] as const;

export const roles = {
  writer: { description: "Writes, or writes anew.", systemPrompt: "You write.", schema: Draft },
  panel: { description: "Three read it side by side.", systemPrompt: "", schema: Panel },
};
