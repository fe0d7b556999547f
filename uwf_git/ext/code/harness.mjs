// Runs a bundle in JavaScript, by Node's own module linker, which admits built-in modules and nothing else.
//
// With a descriptor in UWF_CHANNEL it is told there what to do, and tells there what came of it, as live.py says. Without
// one it only says what the bundle exports:
//
//   node --experimental-vm-modules --disallow-code-generation-from-strings harness.mjs  < order  > answer
//
// The order is JSON on standard input: {source, modules}, where `modules` are the names that may be imported. The answer
// is JSON on standard output: {descriptor, run}, `run` being what kind of thing is exported under that name; or
// {error: {message, line, column}}. What the bundle prints goes to standard error.
//
// What is needed later is taken from the runtime before the bundle's code can change it. What keeps that code from the
// machine is the sandbox around this process, not this file.

import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { Socket } from "node:net";
import { SourceTextModule, SyntheticModule } from "node:vm";

import { jsonSchema, provide } from "./library.mjs";
import { runScript } from "./script.mjs";

const OLDEST = 20;
const LONGEST = 8 * 1024 * 1024; // characters of what is yielded or returned
const { parse, stringify } = JSON;
const { isArray } = Array;
const { keys, entries, defineProperty } = Object;
const { isFinite } = Number;
const exit = process.exit.bind(process);

// By which code could come in that isn't in the file. An honest bundle names them and is refused before it is run; one
// that puts their names together finds nothing.
for (const each of ["getBuiltinModule", "binding", "_linkedBinding", "dlopen", "_debugProcess"]) delete process[each];
syncBuiltinESMExports();

class Refused extends Error {}

let name = "bundle";

/** What went wrong and where in the bundle, as far as the error tells; zeros where it doesn't. */
function told(error) {
  const isError = error !== null && typeof error === "object" && "message" in error;
  const [, after] = isError ? String(error.stack).split(`${name}:`) : [];
  const place = /^(\d+)(?::(\d+))?/.exec(after ?? "");
  const kind = isError && !(error instanceof Refused) && error.name ? `${error.name}: ` : "";
  return {
    message: kind + (isError ? String(error.message) : String(error)),
    line: place ? Number(place[1]) : 0,
    column: place?.[2] ? Number(place[2]) : 0,
  };
}

async function load(source, modules) {
  const allowed = new Set(modules);
  const module = new SourceTextModule(source, {
    identifier: name,
    importModuleDynamically(specifier) {
      throw new Refused(`import("${specifier}") is not allowed`);
    },
    initializeImportMeta(meta) {
      meta.url = "bundle:";
    },
  });
  await module.link(async (specifier) => {
    if (!allowed.has(specifier)) throw new Refused(`imports "${specifier}", which no bundle may import`);
    const found = await import(specifier);
    const names = keys(found);
    return new SyntheticModule(names, function () {
      for (const each of names) this.setExport(each, found[each]);
    });
  });
  await module.evaluate();
  return module.namespace;
}

// What it exports

/** A descriptor with JSON Schemas in place of the objects that can give one. */
function described(descriptor) {
  if (descriptor === null || typeof descriptor !== "object" || !descriptor.roles) return descriptor;
  const roles = {};
  for (const [name, role] of entries(descriptor.roles)) {
    try {
      roles[name] = role && "schema" in role ? { ...role, schema: jsonSchema(role.schema) } : role;
    } catch (error) {
      throw new Refused(`role "${name}": ${error.message}`);
    }
  }
  return { ...descriptor, roles };
}

/** The descriptor, refused where it has a number that JSON would leave out. */
function numbered(descriptor) {
  stringify(descriptor, (key, value) => {
    if (typeof value === "number" && !isFinite(value)) throw new Refused(`${key} is ${value}, which JSON cannot say`);
    return value;
  });
  return descriptor;
}

async function describe() {
  const order = parse(fs.readFileSync(0, "utf8"));
  process.stdout.write = process.stderr.write.bind(process.stderr);
  let answer;
  try {
    const { descriptor, run } = await load(order.source, order.modules);
    answer = { descriptor: numbered(described(descriptor)), run: typeof run };
  } catch (error) {
    answer = { error: told(error) };
  }
  fs.writeSync(1, stringify(answer) + "\n");
  exit(0);
}

// What it does

/** A value as JSON says it, more strictly than JSON.stringify: what that would leave out silently is refused. */
function plain(value, path, around) {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      if (!isFinite(value)) throw new TypeError(`${path} is ${value}, which JSON cannot say`);
      return value;
    case "undefined":
      return null;
    case "object":
      break;
    default:
      throw new TypeError(`${path} is a ${typeof value}, which JSON cannot say`);
  }
  if (value === null) return null;
  if (typeof value.toJSON === "function") return plain(value.toJSON(), path, around);
  if (around.includes(value)) throw new TypeError(`${path} holds itself, which JSON cannot say`);
  if (value instanceof Map || value instanceof Set || value instanceof Promise)
    throw new TypeError(`${path} is a ${value.constructor.name}, which JSON cannot say`);
  const within = [...around, value];
  if (isArray(value)) return value.map((item, at) => plain(item, `${path}[${at}]`, within));
  const found = {};
  for (const key of keys(value))
    if (value[key] !== undefined)
      defineProperty(found, key, {
        value: plain(value[key], `${path}.${key}`, within),
        enumerable: true,
      });
  return found;
}

class Conversation {
  #channel;
  #calls = new Map();
  #made = 0;
  #rest = "";
  #generator;
  #spent = 0;
  #isScript = false;

  constructor(descriptor) {
    this.#channel = new Socket({ fd: descriptor, readable: true, writable: true });
    this.#channel.setEncoding("utf8");
    this.#channel.on("data", (piece) => this.#read(piece));
    this.#channel.on("error", () => exit(1));
    this.#channel.on("end", () => exit(0));
  }

  /** Says why there is nothing more to come. */
  fail(error) {
    let message;
    try {
      message = told(error);
    } catch {
      message = { message: "the thrown value has no text", line: 0, column: 0 };
    }
    this.#channel.end(stringify({ type: "error", ...message }) + "\n", () => exit(1));
  }

  #send(line) {
    this.#channel.write(line + "\n");
  }

  #read(piece) {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) this.#hear(parse(line));
  }

  #hear(message) {
    if (message.type === "answer") this.#answered(message);
    else this.#work(message.type === "start" ? message : null).catch((error) => this.fail(error));
  }

  /** Asks the engine for something; resolves to its answer. */
  #call(what, given) {
    return new Promise((resolve, reject) => {
      this.#made += 1;
      this.#calls.set(this.#made, { resolve, reject });
      this.#channel.ref();
      this.#send(stringify({ ...plain(given, what, []), type: "call", id: this.#made, what }));
    });
  }

  #answered({ id, value, error, spent }) {
    this.#spent = spent ?? this.#spent;
    const waiting = this.#calls.get(id);
    this.#calls.delete(id);
    if (!this.#calls.size) this.#channel.unref();
    if (error !== undefined) waiting?.reject(new Error(error));
    else waiting?.resolve(value);
    this.#pause();
  }

  /** Tells how many answers a script waits for, once it can do nothing without one. */
  #pause() {
    if (this.#isScript) setImmediate(() => this.#send(stringify({ type: "idle", open: this.#calls.size })));
  }

  /** Asks the generator for what comes next; at the start, makes it. */
  async #work(start) {
    this.#channel.unref(); // from here on, only the bundle's own work keeps this process alive
    if (start) await this.#begin(start);
    const { done, value } = await this.#generator.next();
    const what = done ? "the result" : "the yield";
    const line = stringify({ type: done ? "return" : "yield", value: plain(value, what, []) });
    if (line.length > LONGEST) throw new Refused(`${what} has ${line.length} characters, the limit is ${LONGEST}`);
    this.#channel.ref();
    this.#send(line);
  }

  async #begin({ name: called, source, modules, input, options, script }) {
    name = called;
    if (script) {
      this.#beginScript(source, options);
      return;
    }
    const { run } = await load(source, modules);
    if (typeof run !== "function") throw new Refused("it has no function run");
    const { maxRounds, ...given } = options;
    const call = (what, asked) => this.#call(what, asked);
    this.#generator = run(input, provide(call, { ...given, maxRounds: maxRounds ?? Infinity }));
    if (typeof this.#generator?.next !== "function") throw new Refused("its run is no async generator");
  }

  #beginScript(source, { args, spent, total }) {
    this.#isScript = true;
    this.#spent = spent;
    const call = (what, asked) => this.#call(what, asked);
    const say = (line) => fs.writeSync(1, line + "\n");
    this.#generator = whole(
      runScript(source, name, { args: args ?? undefined, call, say, spent: () => this.#spent, total: total ?? null }),
    );
    this.#pause();
  }
}

/** The generator of a script, which yields nothing. */
async function* whole(work) {
  return await work;
}

const [major] = process.versions.node.split(".", 1);
const channel = process.env.UWF_CHANNEL;
delete process.env.UWF_CHANNEL;
if (channel === undefined && Number(major) < OLDEST) {
  fs.writeSync(1, stringify({ error: { message: `this is Node ${process.versions.node}`, node: true } }) + "\n");
} else if (channel === undefined) {
  await describe();
} else {
  const conversation = new Conversation(Number(channel));
  process.on("uncaughtException", (error) => conversation.fail(error));
  process.on("beforeExit", () => conversation.fail(new Refused("it waits for something that never comes")));
  if (Number(major) < OLDEST) conversation.fail(new Refused(`Node ${process.versions.node} is too old for it`));
}
