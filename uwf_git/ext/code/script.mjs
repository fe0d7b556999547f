// Runs a workflow script: a file that begins with `export const meta = {…}`, whose body may await and return, and which
// finds agent(), parallel(), pipeline() and others as globals. It runs in a context of its own, without Node's globals,
// without a clock and without randomness, so that running it again asks the same of the same agents.

import { createContext, Script } from "node:vm";

const NAMES = ["agent", "parallel", "pipeline", "phase", "log", "args", "budget", "workflow"];
const META = /^(\uFEFF?(?:\s|\/\/[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/|(["'])use strict\2;?)*)export(?=\s+const\s+meta\b)/;
const MOST_AGENTS = 1000;
const MOST_ITEMS = 4096;

/**
 * Runs a script to its end and resolves to what it returns. `call(what, given)` asks the engine, `say(line)` prints,
 * `spent()` is the number of tokens so far, `total` their limit or null.
 */
export function runScript(source, name, { args, call, say, spent, total }) {
  const context = createContext({}, { codeGeneration: { strings: false, wasm: false } });
  const run = (text, filename) => new Script(text, { filename }).runInContext(context);
  const host = {
    args: args === undefined ? undefined : JSON.stringify(args),
    async call(what, given) {
      return JSON.stringify((await call(what, JSON.parse(given))) ?? null);
    },
    compile(text, filename) {
      const body = text.replace(META, "$1      ");
      return run(`(async (${NAMES.join(", ")}) => { { ${body}\n} })`, filename);
    },
    say,
    spent,
    total,
    platform: { URL, URLSearchParams, TextDecoder, AbortController, AbortSignal, Event, EventTarget },
    bytes: (text) => new TextEncoder().encode(text),
    encode: btoa,
    decode: atob,
    mostAgents: MOST_AGENTS,
    mostItems: MOST_ITEMS,
  };
  return run(`(${prelude})`, "harness")(host)(source, name);
}

// Its text is run in the script's context, so that all that the script gets is of that context.
function prelude(host) {
  "use strict";
  const { parse, stringify } = JSON;
  const { isArray } = Array;
  const refused = (what, instead) => () => {
    throw new Error(`${what} would differ when the script is run again: ${instead}`);
  };
  const inArgs = "pass the time in args";
  const now = refused("Date.now()", inArgs);
  globalThis.Date = new Proxy(Date, {
    construct: (target, given, made) =>
      given.length ? Reflect.construct(target, given, made) : refused("new Date()", inArgs)(),
    apply: refused("Date()", inArgs),
  });
  Object.defineProperty(Date, "now", { value: now, writable: false, configurable: false });
  Object.defineProperty(Date.prototype, "constructor", { value: Date });
  const { DateTimeFormat } = Intl;
  const format = Object.getOwnPropertyDescriptor(DateTimeFormat.prototype, "format").get;
  const { formatToParts } = DateTimeFormat.prototype;
  const clock = refused("Intl.DateTimeFormat without a date", inArgs);
  Object.defineProperties(DateTimeFormat.prototype, {
    format: {
      get() {
        const formatted = format.call(this);
        return (date) => (date === undefined ? clock() : formatted(date));
      },
    },
    formatToParts: {
      value(date) {
        return date === undefined ? clock() : formatToParts.call(this, date);
      },
    },
  });
  delete globalThis.Temporal?.Now;
  Math.random = refused("Math.random()", "vary by an index, such as that of an item");
  delete globalThis.Atomics;
  delete globalThis.SharedArrayBuffer;
  delete globalThis.WebAssembly;

  // What is the same whenever it runs again is there; the rest of the platform says what to use in its place.
  Object.assign(globalThis, host.platform);
  delete URL.createObjectURL;
  delete URL.revokeObjectURL;
  globalThis.TextEncoder = class TextEncoder {
    encoding = "utf-8";
    encode(text = "") {
      return Uint8Array.from(host.bytes(String(text)));
    }
  };
  globalThis.structuredClone = (value) => clone(value, new Map());
  function clone(value, seen) {
    if (typeof value === "function" || typeof value === "symbol")
      throw new TypeError(`structuredClone() takes data, not a ${typeof value}`);
    if (value === null || typeof value !== "object") return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (made) => (seen.set(value, made), made);
    if (value instanceof Date) return keep(new Date(value.getTime()));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (ArrayBuffer.isView(value) && !(value instanceof DataView)) return keep(value.slice());
    if (value instanceof Map) {
      const made = keep(new Map());
      for (const [key, item] of value) made.set(clone(key, seen), clone(item, seen));
      return made;
    }
    if (value instanceof Set) {
      const made = keep(new Set());
      for (const item of value) made.add(clone(item, seen));
      return made;
    }
    const made = keep(isArray(value) ? [] : value instanceof Error ? new Error(value.message) : {});
    for (const key of Object.keys(value)) made[key] = clone(value[key], seen);
    return made;
  }
  globalThis.btoa = (value) => host.encode(value);
  globalThis.atob = (value) => host.decode(value);
  globalThis.queueMicrotask = (task) => void Promise.resolve().then(task);
  const absent = (name, instead) => () => {
    throw new Error(`a script has no ${name}: ${instead}`);
  };
  const noTimers = "it waits for agents alone, with await agent(…), parallel() and pipeline()";
  for (const name of ["setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval", "clearImmediate"])
    globalThis[name] = absent(`${name}()`, noTimers);
  AbortSignal.timeout = absent("AbortSignal.timeout()", noTimers);
  const noNetwork = "an agent reaches the network, so ask one: agent(…)";
  for (const name of ["fetch", "WebSocket", "EventSource", "XMLHttpRequest"])
    globalThis[name] = absent(`${name}()`, noNetwork);
  const instead = {
    process: "pass what it needs in args",
    performance: inArgs,
    crypto: "pass what is random in args, and let an agent compute digests",
    Buffer: "use TextEncoder, TextDecoder, btoa() or atob()",
  };
  for (const [name, way] of Object.entries(instead)) {
    const refuse = absent(name, way);
    globalThis[name] = new Proxy(function () {}, { get: refuse, set: refuse, has: refuse, apply: refuse, construct: refuse });
  }

  const text = (value) => (typeof value === "string" ? value : value instanceof Error ? String(value) : show(value));
  function show(value) {
    try {
      return stringify(value) ?? String(value);
    } catch {
      return String(value);
    }
  }
  const log = (...given) => host.say(given.map(text).join(" "));
  globalThis.console = { log, info: log, warn: log, error: log, debug: log };

  let made = 0;
  let group = "";

  async function asked(what, given) {
    let answer;
    try {
      answer = await host.call(what, stringify(given));
    } catch (error) {
      throw new Error(String(error?.message ?? error));
    }
    return parse(answer);
  }

  function agent(prompt, options) {
    const answer = ask(prompt, options ?? {});
    answer.catch(() => {}); // it may be awaited later
    return answer;
  }

  const OPTIONS = ["label", "phase", "schema", "model", "effort", "isolation", "agentType"];
  const unknown = new Set();
  /** Logs each unknown option once: the original ignores them. */
  function noteUnknown(options) {
    for (const name of Object.keys(options)) {
      if (OPTIONS.includes(name) || unknown.has(name)) continue;
      unknown.add(name);
      log(`agent() has no option ${name.slice(0, 60)}, and ignores it; its options: ${OPTIONS.join(", ")}`);
    }
  }

  async function ask(prompt, options) {
    noteUnknown(options);
    const { label, phase = group, schema, model, effort, isolation, agentType } = options;
    made += 1;
    if (made > host.mostAgents) throw new Error(`a run asks at most ${host.mostAgents} agents`);
    if (typeof prompt !== "string" || !prompt.trim()) throw new TypeError("agent() takes a prompt, which is text");
    if (schema !== undefined && (schema === null || typeof schema !== "object" || isArray(schema)))
      throw new TypeError("agent(): schema is a JSON Schema, an object");
    if (isolation !== undefined && isolation !== "worktree")
      throw new TypeError(`agent(): isolation is "worktree" or left out, not ${show(isolation)}`);
    if (host.total !== null && host.spent() >= host.total)
      throw new Error(`the budget of ${host.total} tokens is used up`);
    const given = { prompt, label, phase, schema, model, effort, isolation, agentType };
    for (const key of ["label", "phase", "model", "effort", "agentType"])
      if (given[key] !== undefined) given[key] = text(given[key]);
    return asked("script", given);
  }

  function list(value, name) {
    if (!isArray(value)) {
      const isArgs = typeof value === "string" && stringify(value) === host.args;
      const hint = isArgs ? `: args is the prompt, a list if it is JSON: -p '["a", "b"]'` : "";
      throw new TypeError(`${name}() takes a list, not ${value === null ? "null" : typeof value}${hint}`);
    }
    if (value.length > host.mostItems) throw new Error(`${name}() takes at most ${host.mostItems} items, not ${value.length}`);
    return value;
  }

  /** All at once; null for one that throws. */
  async function parallel(thunks) {
    for (const thunk of list(thunks, "parallel"))
      if (typeof thunk !== "function")
        throw new TypeError("parallel() takes functions: parallel(items.map((item) => () => agent(…)))");
    return Promise.all(
      thunks.map(async (thunk, index) => {
        try {
          return await thunk();
        } catch (error) {
          log(`parallel ${index}: ${text(error)}`);
          return null;
        }
      }),
    );
  }

  /** Each item through all stages, at its own pace; null for one whose stage throws. */
  async function pipeline(items, ...stages) {
    for (const stage of stages)
      if (typeof stage !== "function")
        throw new TypeError("pipeline() takes functions after its items: (previous, item, index) => …");
    return Promise.all(
      list(items, "pipeline").map(async (item, index) => {
        let previous = item;
        try {
          for (const stage of stages) previous = await stage(previous, item, index);
          return previous;
        } catch (error) {
          log(`pipeline item ${index}: ${text(error)}`);
          return null;
        }
      }),
    );
  }

  function phase(title) {
    group = text(title);
    host.say(`— ${group}`);
  }

  const budget = Object.freeze({
    total: host.total,
    spent: () => host.spent(),
    remaining: () => (host.total === null ? Infinity : Math.max(0, host.total - host.spent())),
  });

  async function workflow(ref, args) {
    const name = typeof ref === "string" ? ref : ref?.name;
    if (typeof name !== "string")
      throw new TypeError("workflow() takes the name of a registered workflow: uwf workflow put FILE, then its name");
    const { source, file } = await asked("workflow", { name });
    return start(source, file, args === undefined ? undefined : parse(stringify(args)), nested);
  }
  async function nested() {
    throw new Error("workflow() is one level deep: a script that another runs cannot run a third");
  }

  function start(source, name, args, inner) {
    return host.compile(source, name)(agent, parallel, pipeline, phase, log, args, budget, inner);
  }
  return (source, name) => start(source, name, host.args === undefined ? undefined : parse(host.args), workflow);
}
