// Writes folders of nodes as json-cas-fs does, from its description alone: a file <hash>.bin a node, the CBOR of
// {type, payload, timestamp} by RFC 8949's deterministic rules with 64-bit floats; the hash is Crockford's Base32 of the
// XXH64 of the type's characters and the payload's CBOR, and of the CBOR alone for the node that is its own type.
//
//   node json_cas_store.mjs check < vectors.json     says which golden vectors it doesn't meet
//   node json_cas_store.mjs write FOLDER < nodes     prints the hash of each node by its label
//   node json_cas_store.mjs name < bundle            prints what the first engine calls a bundle
//
// `nodes` is {nodes: [[label, type, payload, timestamp], …]}: `type` is a label, or null for a node that is its
// own; in payloads {"@": label} stands for a hash.

import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const MASK = (1n << 64n) - 1n;
const [P1, P2, P3, P4, P5] = [
  0x9e3779b185ebca87n, 0xc2b2ae3d27d4eb4fn, 0x165667b19e3779f9n, 0x85ebca77c2b2ae63n, 0x27d4eb2f165667c5n,
];

const times = (a, b) => (a * b) & MASK;
const plus = (a, b) => (a + b) & MASK;
const turned = (a, by) => ((a << BigInt(by)) | (a >> BigInt(64 - by))) & MASK;
const round = (lane, word) => times(turned(plus(lane, times(word, P2)), 31), P1);

export function xxh64(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  let at = 0;
  let hash;
  if (data.length >= 32) {
    const lanes = [plus(P1, P2), P2, 0n, (0n - P1) & MASK];
    for (; at + 32 <= data.length; at += 32) {
      for (let lane = 0; lane < 4; lane++) {
        lanes[lane] = round(lanes[lane], view.getBigUint64(at + 8 * lane, true));
      }
    }
    hash = [1, 7, 12, 18].reduce((sum, by, lane) => plus(sum, turned(lanes[lane], by)), 0n);
    for (const lane of lanes) hash = plus(times(hash ^ round(0n, lane), P1), P4);
  } else {
    hash = P5;
  }
  hash = plus(hash, BigInt(data.length));
  for (; at + 8 <= data.length; at += 8) {
    hash = plus(times(turned(hash ^ round(0n, view.getBigUint64(at, true)), 27), P1), P4);
  }
  if (at + 4 <= data.length) {
    hash = plus(times(turned(hash ^ times(BigInt(view.getUint32(at, true)), P1), 23), P2), P3);
    at += 4;
  }
  for (; at < data.length; at++) hash = times(turned(hash ^ times(BigInt(data[at]), P5), 11), P1);
  hash = times(hash ^ (hash >> 33n), P2);
  hash = times(hash ^ (hash >> 29n), P3);
  return hash ^ (hash >> 32n);
}

function head(major, number) {
  const first = major << 5;
  if (number < 24) return Buffer.from([first | number]);
  if (number < 2 ** 8) return Buffer.from([first | 24, number]);
  const bytes = number < 2 ** 16 ? 2 : number < 2 ** 32 ? 4 : 8;
  const out = Buffer.alloc(1 + bytes);
  out[0] = first | { 2: 25, 4: 26, 8: 27 }[bytes];
  out.writeBigUInt64BE && bytes === 8 ? out.writeBigUInt64BE(BigInt(number), 1) : out.writeUIntBE(number, 1, bytes);
  return out;
}

function text(value) {
  const bytes = Buffer.from(value, "utf8");
  return Buffer.concat([head(3, bytes.length), bytes]);
}

export function cbor(value) {
  if (value === null) return Buffer.from([0xf6]);
  if (typeof value === "boolean") return Buffer.from([value ? 0xf5 : 0xf4]);
  if (typeof value === "string") return text(value);
  if (typeof value === "number") {
    if (Number.isSafeInteger(value)) return value >= 0 ? head(0, value) : head(1, -1 - value);
    const out = Buffer.alloc(9, 0xfb);
    out.writeDoubleBE(value, 1);
    return out;
  }
  if (Array.isArray(value)) return Buffer.concat([head(4, value.length), ...value.map(cbor)]);
  const entries = Object.entries(value).map(([key, item]) => [text(key), cbor(item)]);
  entries.sort(([one], [other]) => Buffer.compare(one, other));
  return Buffer.concat([head(5, entries.length), ...entries.flat()]);
}

export function hashOf(type, payload) {
  return crockford(xxh64(Buffer.concat([Buffer.from(type ?? "", "ascii"), cbor(payload)])));
}

function crockford(number) {
  let out = "";
  for (let place = 0; place < 13; place++, number >>= 5n) out = ALPHABET[Number(number & 31n)] + out;
  return out;
}

function check({ vectors }) {
  const wrong = vectors.filter(({ type, payload_json: json, cbor_hex: hex, hash }) => {
    const payload = JSON.parse(json);
    return cbor(payload).toString("hex") !== hex || hashOf(type, payload) !== hash;
  });
  return { met: vectors.length - wrong.length, wrong: wrong.map(({ name }) => name) };
}

function write(folder, { nodes }) {
  mkdirSync(join(folder, "_index"), { recursive: true });
  const hashes = {};
  const named = (value) => {
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map(named);
    if ("@" in value) return hashes[value["@"]];
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, named(item)]));
  };
  for (const [label, kind, described, timestamp] of nodes) {
    const payload = named(described);
    const hash = hashOf(kind === null ? null : hashes[kind], payload);
    const type = kind === null ? hash : hashes[kind];
    hashes[label] = hash;
    writeFileSync(join(folder, `${hash}.bin`), cbor({ type, payload, timestamp }));
    appendFileSync(join(folder, "_index", type), `${hash}\n`);
  }
  return hashes;
}

const [task, folder] = process.argv.slice(2);
const input = () => JSON.parse(readFileSync(0, "utf8"));
const name = () => crockford(xxh64(readFileSync(0)));
const tasks = { name, check: () => check(input()), write: () => write(folder, input()) };
console.log(JSON.stringify(tasks[task]()));
