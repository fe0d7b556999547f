"""Bundles that mean harm or don't know better: each is stopped and named in one line, the head stays where it was, and
what there is of the step is kept as an attempt. The machine is watched from outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from cli_samples import write
from commands import begin
from conftest import Uwf

from uwf_git.ext.code.describe import HARNESSES, NODE_FLAGS
from uwf_git.ext.code.live import CHANNEL

pytestmark = [pytest.mark.extended, pytest.mark.needs("bwrap", "node")]

STEP = 'yield { role: "a", content: "done", meta: { n: 1 } };'


def registered(uwf: Uwf, cases: Iterable[tuple[str, str]], imports: str = "") -> None:
    """Registers one bundle that does what the case does which its task names."""
    listed = "\n".join(f'  "{name}": async function* (input, options) {{ {body} }},' for name, body in cases)
    code = f"""{imports}
export const descriptor = {{
  name: "hostile",
  description: "Means harm.",
  roles: {{
    a: {{
      description: "does it",
      schema: {{ type: "object", properties: {{ n: {{ type: "integer" }} }}, required: ["n"] }},
    }},
  }},
}};
const cases = {{
{listed}
}};
export function run(input, options) {{
  return cases[input.prompt](input, options);
}}
"""
    uwf("workflow", "put", write("hostile.esm.js", code))


def started(uwf: Uwf, case: str) -> str:
    return str(uwf("thread", "start", "hostile", "-p", case).json["thread"])


def refused(uwf: Uwf, case: str) -> str:
    """What a step says that fails, in one line, and has left nothing but an attempt."""
    thread = started(uwf, case)
    done = uwf("thread", "step", thread, check=6)
    assert len(done.err.splitlines()) == 1 and "\x1b" not in done.err, case
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["role"], shown["next"]) == ("failed", None, "$BUNDLE"), case
    (attempt,) = uwf("thread", "attempts", thread).json
    assert (attempt["role"], attempt["agent"]) == ("$BUNDLE", "uwf-bundle"), case
    assert attempt["error"] == done.error["message"], case
    return str(attempt["error"])


NO_STEPS = {
    "imports at run time": ('await (0, globalThis["ev" + "al"])("import(\'node:fs\')");', "EvalError"),
    "makes code of text": ('Reflect.construct((() => {}).constructor, ["return 1"])();', "EvalError"),
    "reaches for another module": (
        'globalThis["process"]["getBuiltin" + "Module"]("vm").runInThisContext("1");',
        "not a function",
    ),
    "reaches for what is inside": ('const of = process; of["bind" + "ing"]("fs");', "not a function"),
    "throws what cannot be told": ("throw { toString() { throw 1; } };", "has no text"),
    "throws with colours": ('throw new Error("\\u001b[31mred");', "in line"),
    "fails beside its generator": (
        'setTimeout(() => { throw new Error("late"); }); await new Promise((go) => setTimeout(go, 500));',
        "late",
    ),
    "crashes": ("process.abort();", "signal 6"),
    "exits": ("process.exit(3);", "exited with 3"),
    "waits for nothing": ("await new Promise(() => {});", "never comes"),
    "yields no step": ("yield 5;", "yielded 5"),
    "yields no role": (STEP.replace('"a"', '"zz"'), "'zz', which is not a role"),
    "yields the user": (STEP.replace('"a"', '"$USER"'), "'$USER', which is not a role"),
    "yields the end": (STEP.replace('"a"', '"$END"'), "'$END', which is not a role"),
    "yields no text": (STEP.replace('"done"', "[]"), "not text"),
    "yields no meta": (STEP.replace("meta", "beta"), "no meta"),
    "breaks its schema": (STEP.replace("n: 1", 'n: "one"'), "/n"),
    "yields a cycle": ("const m = { n: 1 }; m.self = m; " + STEP.replace("{ n: 1 }", "m"), "holds itself"),
    "yields a bigint": (STEP.replace("n: 1", "n: 1n"), "bigint"),
    "yields a function": (STEP.replace("n: 1", "n: 1, f() {}"), "function"),
    "yields too deep": (
        "let d = 1; for (let i = 0; i < 300; i += 1) d = { d }; " + STEP.replace("n: 1", "n: 1, d"),
        "nested deeper",
    ),
    "yields an incomplete character": (STEP.replace('"done"', '"a\\ud800"'), "an incomplete character"),
    "yields half a role": (
        STEP.replace('"a"', '"a\\ud800"'),
        "a role whose name holds an incomplete character",
    ),
    "yields a huge text": (STEP.replace('"done"', '"x".repeat(3e7)'), "the limit is"),
    "yields a huge meta": (STEP.replace("n: 1", 'n: 1, x: "y".repeat(2e6)'), "the limit is"),
    "returns no JSON": ("return () => 1;", "the result is a function"),
}


def test_what_is_no_step_is_named_and_kept(uwf: Uwf) -> None:
    registered(uwf, ((case, body) for case, (body, _) in NO_STEPS.items()))
    for case, (_, said) in NO_STEPS.items():
        assert said in refused(uwf, case), case
    uwf("verify", "--strict")


_CHANNEL = """\
const channel = () => readdirSync("/proc/self/fd").find((each) => {
  try { return readlinkSync(`/proc/self/fd/${each}`).startsWith("socket:"); } catch { return false; }
});
"""
HARM = {
    "loops for ever": ("for (;;);", "took over 2 s"),
    "loops and prints": ('for (;;) process.stdout.write("x".repeat(1e6) + "\\n");', "took over 2 s"),
    "eats objects": ("const all = []; for (;;) all.push({ n: [1, 2, 3] });", "out of memory"),
    "eats buffers": ("const all = []; for (;;) all.push(Buffer.alloc(1 << 26, 1));", "Array buffer allocation"),
    "fills the disk": (
        'const part = Buffer.alloc(1 << 24); for (let n = 0; ; n += 1) appendFileSync(`/tmp/${n % 4}`, part);',
        "ENOSPC",
    ),
    "talks nonsense": (
        'writeSync(Number(channel()), "no JSON\\n"); await new Promise((go) => setTimeout(go, 1000));',
        "its harness doesn't know",
    ),
    "talks without end": (
        'for (const piece = "x".repeat(1e6), to = Number(channel()); ;) try { writeSync(to, piece); } catch {}',
        "more than 16 MiB at once",
    ),
    "calls too often": (
        'for (let n = 0; n < 1100; n += 1) options.agents.nobody({ role: 5 }).catch(() => {});'
        " await new Promise((go) => setTimeout(go, 1e5));",
        "over 1000 calls",
    ),
    "calls with too much": (
        'for (let n = 0; n < 9; n += 1) options.agents.nobody({ prompt: "x".repeat(1.5e7) }).catch(() => {});'
        " await new Promise((go) => setTimeout(go, 1e5));",
        "have over 64 MiB",
    ),
}  # fmt: skip


def test_what_would_harm_the_machine_is_bounded(uwf: Uwf) -> None:
    registered(
        uwf,
        ((case, body) for case, (body, _) in HARM.items()),
        'import { appendFileSync, readdirSync, readlinkSync, writeSync } from "node:fs";\n' + _CHANNEL,
    )
    for case, (_, said) in HARM.items():
        uwf("config", "set", "bundles.hostile.timeout", "2s" if "2 s" in said else "60s")
        thread = started(uwf, case)
        step = begin("thread", "step", thread)
        assert step.stdout is not None and step.stderr is not None
        errors = step.stderr.read()
        _, status, used = os.wait4(step.pid, 0)
        step.returncode = os.waitstatus_to_exitcode(status)
        assert said in errors and len(errors.splitlines()) == 1, (case, errors)
        # Kilobytes, of the largest of all processes: the limit of the code's data, and what a Node maps besides.
        assert used.ru_maxrss < 1_600_000, (case, used.ru_maxrss)
        (attempt,) = uwf("thread", "attempts", thread).json
        assert len(attempt["stdout"]) + len(attempt["stderr"]) <= 8000
        assert uwf("thread", "show", thread).json["role"] is None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('await import("node:fs");', 'import("node:fs") is not allowed'),
        ('} import "./beside.js"; {', 'imports "./beside.js", which no bundle may import'),
        ('} import "node:vm"; {', 'imports "node:vm", which no bundle may import'),
    ],
)
def test_what_nobody_checked_before_is_refused_by_the_linker_all_the_same(source: str, said: str) -> None:
    order = {
        "type": "start",
        "name": "unchecked",
        "source": f"export async function* run() {{ {source} }}",
        "modules": ["node:fs"],
        "input": {"prompt": "", "steps": []},
        "options": {"threadId": "", "maxRounds": None},
    }
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rw") as channel:
        channel.write(json.dumps(order) + "\n")
        channel.flush()
        argv = ["node", *NODE_FLAGS, str(HARNESSES["javascript"])]
        env = {**os.environ, CHANNEL: str(theirs.fileno())}
        done = subprocess.run(argv, env=env, pass_fds=[theirs.fileno()], timeout=60, check=False)
        assert done.returncode == 1
        answer = json.loads(channel.readline())
    assert (answer["type"], answer["message"]) == ("error", said)


LOOKS = """\
const seen = { env: Object.keys(process.env), root: readdirSync("/"), home: null, tmp: readdirSync("/tmp") };
seen.processes = readdirSync("/proc").filter((each) => /^[0-9]+$/.test(each)).length;
try { writeFileSync("PLACE/hacked", "x"); } catch (error) { seen.home = error.code; }
seen.net = await new Promise((go) => {
  connect(PORT, "127.0.0.1").on("connect", () => go("connected")).on("error", (error) => go(error.code));
});
for (const victim of [process.ppid, 1, -1]) {
  try { process.kill(victim, "SIGKILL"); } catch {}
}
spawn("sh", ["-c", "trap '' TERM HUP; while :; do sleep TOKEN; done"], { detached: true, stdio: "ignore" }).unref();
yield { role: "a", content: JSON.stringify(seen), meta: { n: 1 } };
"""


def test_code_sees_nothing_of_the_user_and_leaves_nothing_behind(
    uwf: Uwf, root: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port, token = server.getsockname()[1], f"8{os.getpid()}.5"
        looks = LOOKS.replace("PORT", str(port)).replace("TOKEN", token).replace("PLACE", str(tmp_path))
        imports = (
            'import { readdirSync, writeFileSync } from "node:fs";\nimport { connect } from "node:net";\n'
            'import { spawn } from "node:child_process";'
        )
        registered(uwf, [("looks", looks)], imports)
        thread = started(uwf, "looks")
        uwf(
            "thread", "step", thread, env={"OPENAI_API_KEY": "sk-1234567890abcdef", "HTTPS_PROXY": "http://p"}
        )
    detail = uwf("cas", "get", uwf("thread", "steps", thread).json[0]["detail"]).json["payload"]
    seen = json.loads(detail["answer"])
    assert not {"OPENAI_API_KEY", "UWF_STORAGE_ROOT", "UWF_CHANNEL", "HTTPS_PROXY"} & set(seen["env"])
    assert (seen["home"], seen["net"], seen["tmp"]) == ("ENOENT", "ECONNREFUSED", [])
    assert not {"home", "root"} & set(seen["root"]) and seen["processes"] < 6
    assert not (tmp_path / "hacked").exists()
    assert not [each for each in _commands() if token in each]


def _commands() -> list[str]:
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                found.append((each / "cmdline").read_bytes().decode("utf-8", "replace"))
            except OSError:
                continue
    return found


LEAVES = """\
import subprocess

descriptor = {"name": "leaves", "description": "Leaves git something to run.", "roles": {
    "a": {"description": "does it", "schema": {"type": "object"}}}}


async def run(input, options):
    script = '''
    mv project old && cp -r old project && git -C project config core.fsmonitor "touch PLACE/run; false"
    git init -q sub && git -C sub config core.fsmonitor "touch PLACE/run; false"
    '''
    done = subprocess.run(["sh", "-c", script], cwd=input["prompt"], capture_output=True, text=True)
    yield {"role": "a", "content": done.stderr, "meta": {"status": done.returncode}}
"""


def test_no_repository_that_code_leaves_where_it_may_write_is_one_to_git(uwf: Uwf, tmp_path: Path) -> None:
    project = tmp_path / "granted" / "project"
    subprocess.run(["git", "init", "-q", project], check=True)
    uwf("workflow", "put", write("leaves.py", LEAVES.replace("PLACE", str(tmp_path))))
    uwf("config", "set", "bundles.leaves", json.dumps({"write": [str(project.parent)]}))
    thread = uwf("thread", "start", "leaves", "-p", str(project.parent)).json["thread"]
    uwf("thread", "step", thread)
    (made,) = uwf("thread", "steps", thread).json
    detail = uwf("cas", "get", made["detail"]).json["payload"]
    assert made["output"] == {"status": 0}, detail["answer"]
    for folder in (project, project.parent / "sub"):
        assert (
            subprocess.run(["git", "status"], cwd=folder, check=False, capture_output=True).returncode == 128
        )
        assert f"{folder}/.git is now .git.taken-" in "".join(detail["notes"])
    assert not (tmp_path / "run").exists()
    subprocess.run(["git", "status"], cwd=project.parent / "old", check=True, capture_output=True)
