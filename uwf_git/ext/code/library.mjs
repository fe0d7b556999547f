// What a bundle in JavaScript finds in its `options`, beside the thread's id and how many rounds there may be: agents
// of this machine, extraction, and the functions that bundles used to import.

import { spawn } from "node:child_process";

export const START = "__start__";
export const END = "__end__";
const ENDS = [END, "$END", null, undefined];
const USER = "$USER";

/** A JSON Schema, or that of an object which can tell its own, as Zod's can. */
export function jsonSchema(schema) {
  if (typeof schema?.toJSONSchema === "function") return schema.toJSONSchema();
  const standard = schema?.["~standard"]?.jsonSchema;
  if (typeof standard?.input === "function") return standard.input({ target: "draft-2020-12" });
  if (schema?._zod !== undefined || schema?._def !== undefined)
    throw new TypeError("this schema is Zod's, and tells no JSON Schema: write z.toJSONSchema(…)");
  return schema;
}

/** Whether a step asks a human, who answers in the step after it. */
function asks({ meta }) {
  return meta?.$status === "$SUSPEND" || (meta?.status === "needs_input" && typeof meta.question === "string");
}

/** The whole prompt for an agent that is no agent of this engine: the role's, the task, and what happened so far. */
export function buildAgentPrompt(ctx) {
  const system = ctx.currentRole?.systemPrompt ?? ctx.systemPrompt;
  const task = ctx.start?.content ?? ctx.prompt ?? "";
  const steps = ctx.steps ?? [];
  const parts = [system, `## Task\n\n${task}`];
  steps.forEach((step, at) => {
    const told = `Meta: ${JSON.stringify(step.meta)}`;
    const isLast = at === steps.length - 1;
    const text = isLast && step.content ? `${step.content}\n\n${told}` : told;
    parts.push(`## ${isLast ? "Latest step" : `Step ${at + 1}`}: ${step.role}\n\n${text}`);
  });
  if (ctx.threadId && steps.length > 1)
    parts.push(`## Looking things up\n\n\`uwf thread read ${ctx.threadId}\` prints every step in full.`);
  return parts.filter(Boolean).join("\n\n");
}

/**
 * Runs a command in the bundle's sandbox. Resolves to {ok: true, value} with what it printed, or {ok: false, error}
 * where error.kind is "non_zero_exit" (with exitCode, stdout, stderr), "timeout" or "spawn_failed". Times are in
 * milliseconds.
 */
export function spawnCli(command, args = [], { cwd, input, timeout, timeoutMs = timeout } = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: cwd ?? undefined, stdio: ["pipe", "pipe", "pipe"] });
    const printed = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"]) {
      child[name].setEncoding("utf8");
      child[name].on("data", (piece) => (printed[name] += piece));
    }
    let isLate = false;
    const timer = timeoutMs
      ? setTimeout(() => {
          isLate = true;
          child.kill("SIGTERM");
        }, timeoutMs)
      : null;
    child.on("error", (error) => {
      clearTimeout(timer);
      resolve({ ok: false, error: { kind: "spawn_failed", message: error.message } });
    });
    child.on("close", (exitCode) => {
      clearTimeout(timer);
      if (isLate) resolve({ ok: false, error: { kind: "timeout" } });
      else if (exitCode === 0) resolve({ ok: true, value: printed.stdout });
      else resolve({ ok: false, error: { kind: "non_zero_exit", exitCode, ...printed } });
    });
    child.stdin.on("error", () => {}); // it may end without reading
    child.stdin.end(input ?? "");
  });
}

/**
 * The options of one run. `call(what, given)` asks the engine and resolves to its answer; `base` is what the engine
 * itself passes.
 */
export function provide(call, base) {
  /** An agent: it is told of a context, and resolves to its answer as text. */
  function agentCalled(agent, bound) {
    return async (ctx = {}) =>
      call("agent", {
        agent,
        role: bound ?? ctx.currentRole?.name ?? ctx.role ?? null,
        prompt: ctx.prompt ?? null,
        systemPrompt: ctx.systemPrompt ?? ctx.currentRole?.systemPrompt ?? null,
        schema: ctx.schema === undefined ? null : jsonSchema(ctx.schema),
      });
  }

  const agents = new Proxy(
    {},
    {
      get(_, name) {
        // Neither a symbol nor the mark of a promise is an agent's name.
        if (typeof name !== "string" || name === "then") return undefined;
        return agentCalled(name === "default" ? null : name);
      },
    },
  );

  const agent = (role) => agentCalled(null, role);

  /**
   * Data that obeys the schema, out of what an agent said, or out of any text; without one, what a model reads in the
   * thread. `prompt` says what to look for.
   */
  async function extract(schema, prompt, ctx) {
    const text = typeof ctx === "string" ? ctx : (ctx?.agentContent ?? ctx?.content ?? "");
    const role = ctx?.currentRole?.name ?? ctx?.role ?? null;
    return call("extract", { schema: jsonSchema(schema), prompt: prompt ?? null, text, role });
  }

  /**
   * The `run` of a workflow whose moderator names the next role: its agent answers, the role's data are read out of the
   * answer, and that is the step. `def` is {roles: {name: {systemPrompt, extractPrompt, schema}}, moderator(ctx)};
   * `binding` is {agent, overrides: {role: agent}}, and this machine's own agents without it.
   */
  function createWorkflow(def, binding, read = extract) {
    return async function* (input, given = options) {
      const content = input.prompt;
      const start = { role: START, content, meta: { maxRounds: given.maxRounds }, timestamp: Date.now() };
      const all = [...input.steps];
      for (;;) {
        const steps = all.filter((step) => step.role !== USER && !asks(step));
        const ctx = { threadId: given.threadId, depth: 0, start, steps };
        const isAnswered = all.at(-1)?.role === USER && all.length > 1;
        const name = isAnswered ? all.at(-2).role : await def.moderator(ctx);
        if (ENDS.includes(name)) return { returnCode: 0, summary: "completed: moderator returned END" };
        const role = def.roles[name];
        if (role === undefined) throw new Error(`the moderator named ${String(name)}, which is no role`);
        const currentRole = { name, systemPrompt: role.systemPrompt };
        const asked = { ...ctx, steps: all, currentRole };
        const answer = await (binding?.overrides?.[name] ?? binding?.agent ?? agents.default)(asked);
        const isText = typeof answer === "string"; // code may give the data themselves
        const meta = isText ? await read(role.schema, role.extractPrompt, { ...asked, agentContent: answer }) : answer;
        const step = { role: name, content: isText ? answer : "", meta, timestamp: Date.now() };
        yield step;
        all.push(step);
      }
    };
  }

  const options = Object.freeze({
    ...base,
    agents,
    agent,
    extract,
    createWorkflow,
    buildAgentPrompt,
    spawnCli,
    START,
    END,
  });
  return options;
}
