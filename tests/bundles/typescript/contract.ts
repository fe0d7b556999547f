// What a bundle is given and gives, as far as this one uses it.

export type Step = { role: string; content: string; meta: Record<string, unknown>; timestamp: number };

export type Input = { prompt: string; steps: Step[] };

export type Agent = (asked: { role?: string; prompt?: string; schema?: unknown }) => Promise<string>;

export type Options = {
  threadId: string;
  maxRounds: number;
  agents: Record<string, Agent>;
  extract(schema: unknown, prompt: string, text: string | { agentContent: string; role?: string }): Promise<any>;
};
