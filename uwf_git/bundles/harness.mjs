// Loads a bundle in JavaScript, by Node's own module linker, which admits built-in modules and nothing else.
//
//   node --experimental-vm-modules --disallow-code-generation-from-strings harness.mjs  < order  > answer
//
// The order is JSON on standard input: {mode: "descriptor", source, modules}, where `modules` are the names that may be
// imported. The answer is JSON on standard output: {descriptor, run}, `run` being what kind of thing is exported under
// that name; or {error: {message, line, column}}. What the bundle prints goes to standard error.

import fs from "node:fs";
import vm from "node:vm";

const OLDEST = 20;
const NAME = "bundle";
const stringify = JSON.stringify;

class Refused extends Error {}

function answer(value) {
  fs.writeSync(1, stringify(value) + "\n");
  process.exit(0);
}

/** What went wrong and where in the bundle, as far as the error tells. */
function told(error) {
  const isError = error !== null && typeof error === "object" && "message" in error;
  const place = /(?:^|[\s(/])bundle:(\d+)(?::(\d+))?/.exec(isError ? String(error.stack) : "");
  const name = isError && !(error instanceof Refused) && error.name ? `${error.name}: ` : "";
  return {
    message: name + (isError ? String(error.message) : String(error)),
    line: place ? Number(place[1]) : 0,
    column: place && place[2] ? Number(place[2]) : 0,
  };
}

async function load(source, modules) {
  const allowed = new Set(modules);
  const module = new vm.SourceTextModule(source, {
    identifier: NAME,
    importModuleDynamically() {
      throw new Refused("import() is not allowed");
    },
    initializeImportMeta(meta) {
      meta.url = "bundle:";
    },
  });
  await module.link(async (specifier) => {
    if (!allowed.has(specifier)) throw new Refused(`imports "${specifier}", which is no built-in module of Node`);
    const namespace = await import(specifier);
    const names = Object.keys(namespace);
    return new vm.SyntheticModule(names, function () {
      for (const name of names) this.setExport(name, namespace[name]);
    });
  });
  await module.evaluate();
  return module.namespace;
}

/** A descriptor with JSON Schemas in place of the objects that can give one. */
function described(descriptor) {
  if (descriptor === null || typeof descriptor !== "object" || !descriptor.roles) return descriptor;
  const roles = {};
  for (const [name, role] of Object.entries(descriptor.roles)) {
    const schema = role?.schema;
    if (typeof schema?.toJSONSchema === "function") roles[name] = { ...role, schema: schema.toJSONSchema() };
    else if (schema?._def !== undefined || schema?._zod !== undefined)
      throw new Refused(`the schema of role "${name}" is Zod's, and tells no JSON Schema: write z.toJSONSchema(…)`);
    else roles[name] = role;
  }
  return { ...descriptor, roles };
}

async function main() {
  const [major] = process.versions.node.split(".", 1);
  if (Number(major) < OLDEST) return { error: { message: `this is Node ${process.versions.node}`, node: true } };
  const order = JSON.parse(fs.readFileSync(0, "utf8"));
  process.stdout.write = process.stderr.write.bind(process.stderr);
  try {
    const { descriptor, run } = await load(order.source, order.modules);
    return { descriptor: described(descriptor), run: typeof run };
  } catch (error) {
    return { error: told(error) };
  }
}

answer(await main());
