"""What a bundle's code asks for: agents of this machine, by their names or by the role, side by side, and data out of
what they said."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import pytest
from bundle_files import DUET
from cli_samples import write
from conftest import Uwf
from model_server import ModelServer, says

pytestmark = pytest.mark.needs("bwrap", "node")

FAN = """\
import asyncio

FOUND = {"type": "object", "properties": {"found": {"type": "string"}}, "required": ["found"]}
ALL = {"type": "object", "properties": {"all": {"type": "array"}, "failed": {"type": "string"}}}

descriptor = {
    "name": "fan",
    "description": "Several look at once.",
    "roles": {"scouts": {"description": "look", "schema": ALL}},
}


async def run(input, options):
    async def look(name):
        said = await options.agents[name](prompt=f"Look as {name}", schema=FOUND)
        return (await options.extract(FOUND, "What was found.", said))["found"]

    both = await asyncio.gather(look("left"), look("right"))
    try:
        failed = await options.agents.broken(prompt="Look", schema=FOUND)
    except RuntimeError as error:
        failed = str(error)
    yield {"role": "scouts", "content": "", "meta": {"all": both, "failed": failed}}
"""

# Each is through once the other has begun, so one after the other they would never be.
MEETING = """\
import pathlib, sys, time
mine, other = sys.argv[1:]
pathlib.Path(mine).touch()
while not pathlib.Path(other).exists():
    time.sleep(0.02)
print('{"found": "%s"}' % mine)
"""


def begun(uwf: Uwf, name: str, text: str) -> str:
    """A thread of the bundle with that text, which is registered by it."""
    put = uwf("workflow", "put", write(name, text)).json
    return str(uwf("thread", "start", put["hash"], "-p", "Do it").json["thread"])


def test_agents_are_asked_side_by_side_by_name_and_what_fails_is_the_codes_to_catch(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    python = sys.executable
    write("meeting.py", MEETING)
    config(
        "agents:\n"
        f"  left: {{command: uwf-exec, args: [{python}, meeting.py, left, right]}}\n"
        f"  right: {{command: uwf-exec, args: [{python}, meeting.py, right, left]}}\n"
        "  broken: {command: uwf-exec, args: [sh, -c, 'echo out of order; exit 3']}\n"
    )
    thread = begun(uwf, "fan.py", FAN)
    uwf("thread", "step", thread)
    (step,) = uwf("thread", "steps", thread).json
    assert step["output"]["all"] == ["left", "right"]
    assert "exited with 3" in step["output"]["failed"]
    detail = uwf("thread", "step-details", step["step"], "--format", "json").json["detail"]["value"]
    said = [(turn["role"], turn["text"]) for turn in detail["turns"]]
    assert {text for role, text in said if role == "user"} == {"Look as left", "Look as right", "Look"}
    assert any("out of order" in text for role, text in said if role == "tool")


def test_agents_of_one_step_work_one_after_the_other_if_only_one_may_work(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    alone = """'mkdir alone && sleep 0.2 && rmdir alone && echo "{\\"found\\": \\"alone\\"}"'"""
    config(
        "maxAgents: 1\nagents:\n"
        f"  left: {{command: uwf-exec, args: [sh, -c, {alone}]}}\n"
        f"  right: {{command: uwf-exec, args: [sh, -c, {alone}]}}\n"
        "  broken: {command: uwf-exec, args: ['false']}\n"
    )
    thread = begun(uwf, "fan.py", FAN)
    uwf("thread", "step", thread)
    assert uwf("thread", "steps", thread).json[0]["output"]["all"] == ["alone", "alone"]


CHOSEN = """\
export const descriptor = {
  name: "chosen",
  description: "Who is asked depends.",
  roles: { asker: { description: "asks", schema: { type: "object", properties: { said: {} } } } },
};

export async function* run(input, options) {
  const named = await options.agents.named({ prompt: "x", schema: { properties: { me: { type: "string" } } } });
  const nobody = await options.agents.nobody({ role: "asker" }).catch((error) => `"${error.message}"`);
  const role = await options.agent("asker")();
  yield { role: "asker", content: "", meta: { said: [named, nobody, role].map((text) => text.split('"').at(-2)) } };
}
"""


def test_a_name_is_the_configurations_and_a_call_of_one_that_nobody_has_fails(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    def prints(name: str) -> str:
        return f"""{{command: uwf-exec, args: [echo, '{{"me": "{name}"}}']}}"""

    config(
        f"agents:\n  named: {prints('named')}\n  default: {prints('role')}\n  given: {prints('given')}\n"
        "agentOverrides: {chosen: {asker: default}}\n"
    )
    put = uwf("workflow", "put", write("chosen.esm.js", CHOSEN)).json

    def said(*options: str) -> list[str]:
        thread = uwf("thread", "start", put["hash"], "-p", "Ask").json["thread"]
        uwf("thread", "step", thread, *options)
        told: list[str] = uwf("thread", "steps", thread).json[0]["output"]["said"]
        return told

    named, nobody, role = said()
    assert (named, role) == ("named", "role")
    for part in ("agent 'nobody'", "uwf config set agents.nobody.command", "known: named, "):
        assert part in nobody
    assert said("--agent", "given") == ["given"] * 3

    thread = uwf("thread", "start", put["hash"], "-p", "Ask").json["thread"]
    uwf("thread", "run", thread, "--agent", "given")  # of a whole run it replaces no commands
    told = uwf("thread", "steps", thread).json[0]["output"]["said"]
    assert (told[0], told[2]) == ("named", "role")


SIGNED = """\
import asyncio

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
descriptor = {"name": "signed", "description": "Who said it?", "roles": {"judge": {"description": "j", "schema": TEXT}}}


async def run(input, options):
    def step(content):
        return {"role": "judge", "content": content, "meta": {"text": "fine"}}

    if not input["steps"]:
        try:
            await options.agents.broken(prompt="Judge")
        except RuntimeError:
            pass
        yield step("LGTM, I have read all of it.")
    said = await options.agents.real(prompt="Judge")
    if len(input["steps"]) == 1:
        yield step(said + " LGTM.")
    if len(input["steps"]) == 2:
        yield step(said)
    asyncio.create_task(options.agents.slow(prompt="Take your time"))
    await options.agents.waits(prompt="Wait for it")
    yield step("It was slow.")
"""


def test_a_step_bears_the_name_of_who_said_its_words_and_tells_whom_else_the_code_asked(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    config(
        "agents:\n"
        "  broken: {command: 'false'}\n"
        "  real: {command: uwf-exec, args: [echo, 'Not good.']}\n"
        "  slow: {command: uwf-exec, args: [sh, -c, 'echo $$ > pid; sleep 600']}\n"
        "  waits: {command: uwf-exec, args: [sh, -c, 'while ! [ -s pid ]; do sleep 0.02; done']}\n"
    )
    thread = begun(uwf, "signed.py", SIGNED)
    for _ in range(4):
        uwf("thread", "step", thread)
    steps = uwf("thread", "steps", thread).json
    assert [each["agent"] for each in steps] == ["uwf-bundle", "uwf-bundle", "uwf-exec", "uwf-bundle"]
    details = [
        uwf("thread", "step-details", each["step"], "--format", "json").json["detail"]["value"]
        for each in steps
    ]
    assert [each.get("notes", []) for each in details] == [
        ["the code asked uwf-false (failed)"],
        ["the code asked uwf-exec"],
        [],
        ["the code asked uwf-exec, slow (broken off)"],
    ]
    assert "Take your time" in [turn["text"] for turn in details[-1]["turns"]]
    assert not commands.alive(Path("pid").read_text().strip())
    uwf("verify", "--all")


KEPT = """\
export const descriptor = {
  name: "keeps",
  description: "Tells later what it heard before.",
  roles: { teller: { description: "tells", schema: { type: "object" } } },
};

export async function* run(input, options) {
  const heard = await options.agent("teller")();
  yield { role: "teller", content: "Nothing yet.", meta: {} };
  yield { role: "teller", content: heard, meta: {} };
  return { heard };
}
"""


def test_what_a_process_says_after_it_was_given_made_up_answers_is_marked_as_made_up(uwf: Uwf) -> None:
    thread = begun(uwf, "keeps.esm.js", KEPT)
    uwf("thread", "run", thread)
    assert {each["agent"] for each in uwf("thread", "steps", thread).json} == {"uwf-rehearse"}
    assert uwf("thread", "show", thread).json["rehearsed"] == 3


WORKED = """\
export const descriptor = {
  name: "worked",
  description: "Words of its own after real work.",
  roles: { one: { description: "one", schema: { type: "object" } } },
};

export async function* run(input, options) {
  if (!input.steps.length) {
    await options.agents.real({ prompt: "Work" });
    yield { role: "one", content: "Mine.", meta: {} };
  }
  yield { role: "one", content: await options.agent("one")(), meta: {} };
}
"""


def test_nothing_is_made_up_after_a_step_of_the_codes_own_words_for_which_an_agent_worked(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    config("agents: {real: {command: uwf-exec, args: [echo, done]}}\n")
    thread = begun(uwf, "worked.esm.js", WORKED)
    uwf("thread", "step", thread)
    refused = uwf("thread", "step", thread, check=6).error
    assert "generate outputs where other agents have worked: agents that its code asked" in refused["message"]


TALK = """\
const schema = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
const roles = {
  writer: { description: "writes", systemPrompt: "Write.", extractPrompt: "The text.", schema },
  critic: { description: "criticises", schema },
};
export const descriptor = { name: "duet", description: "One writes, one criticises.", roles };

function moderator({ steps }) {
  if (steps.length === 4) return "__end__";
  return steps.at(-1)?.role === "writer" ? "critic" : "writer";
}

export function run(input, options) {
  return options.createWorkflow({ roles, moderator }, { agent: options.agents.default })(input, options);
}
"""


@pytest.mark.parametrize("text", [TALK, DUET], ids=["javascript", "python"])
def test_a_role_that_asks_goes_again_once_it_is_answered_and_the_moderator_hears_of_neither(
    uwf: Uwf, script: Callable[[str, str], Path], text: str
) -> None:
    asks = "- {role: writer, output: {$status: $SUSPEND, question: Which one?}}\n"
    rest = [f"- {{role: {role}, output: {{text: {n}}}}}\n" for n, role in enumerate(["writer", "critic"] * 2)]
    path = write("script.yaml", asks + "".join(rest).replace("text: ", "text: t"))
    thread = begun(uwf, "duet.py" if text is DUET else "duet.esm.js", text)
    agent = ("--agent", f"uwf-rehearse --script {path}")
    uwf("thread", "run", thread, *agent, check=5)
    assert uwf("thread", "show", thread).json["question"] == "Which one?"
    uwf("thread", "answer", thread, "-m", "This one")
    uwf("thread", "run", thread, *agent)
    told = [each["role"] for each in uwf("thread", "steps", thread).json]
    assert told == ["writer", "$USER", "writer", "critic", "writer", "critic", "$END"]


@pytest.mark.parametrize("text", [TALK, DUET], ids=["javascript", "python"])
def test_a_remark_is_told_to_the_agent_that_the_code_asks_next_and_not_to_the_code(
    uwf: Uwf, text: str
) -> None:
    thread = begun(uwf, "duet.py" if text is DUET else "duet.esm.js", text)
    agent = ("--agent", "uwf-exec --stdin prompt sh -c 'grep -c Hurry; echo ---; echo text: t; echo ---'")
    uwf("thread", "step", thread, *agent)
    uwf("thread", "say", thread, "-m", "Hurry.")
    uwf("thread", "step", thread, *agent)
    uwf("thread", "say", thread, "-m", "Hurry more.")
    uwf("thread", "run", thread, *agent)
    steps = uwf("thread", "steps", thread).json
    assert [each["role"] for each in steps] == [
        *("writer", "$USER", "critic", "$USER", "writer", "critic", "$END"),
    ]
    asked = [uwf("thread", "step-details", steps[place]["step"], "--format", "json").json for place in (0, 2)]
    told = [each["detail"]["value"]["answer"].split()[0] for each in asked]
    assert told == ["0", "2"], "as a step, and as what is said now"
    assert uwf("verify", "--all").json["findings"] == []


CODE = (
    ("tally.py", """\
from uwf_git.workflow import define

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}

async def count(ctx):
    return {"count": len(ctx.prompt)}

async def say(ctx):
    return f"---\\ncount: {ctx.last['count'] + 1}\\n---\\n"

workflow = define(
    description="Counts.",
    roles={"counter": {"description": "counts", "schema": COUNT}, "sayer": {"description": "says", "schema": COUNT}},
    agents={"counter": count, "sayer": say},
    moderator=lambda ctx: ["counter", "sayer", None][len(ctx.steps)],
)
"""),
    ("tally.esm.js", """\
const schema = { type: "object", properties: { count: { type: "integer" } }, required: ["count"] };
const roles = { counter: { description: "counts", schema }, sayer: { description: "says", schema } };
export const descriptor = { description: "Counts.", roles };
const overrides = {
  counter: async (ctx) => ({ count: ctx.start.content.length }),
  sayer: async (ctx) => `---\\ncount: ${ctx.steps[0].meta.count + 1}\\n---\\n`,
};
export async function* run(input, options) {
  const moderator = ({ steps }) => ["counter", "sayer", "__end__"][steps.length];
  return yield* options.createWorkflow({ roles, moderator }, { overrides })(input, options);
}
"""),
)  # fmt: skip


@pytest.mark.parametrize(("name", "text"), CODE, ids=["python", "javascript"])
def test_a_role_that_is_code_gives_its_data_or_a_text_that_holds_them(uwf: Uwf, name: str, text: str) -> None:
    thread = begun(uwf, name, text)
    uwf("thread", "run", thread)
    steps = uwf("thread", "steps", thread).json
    assert [each["output"] for each in steps[:2]] == [{"count": 5}, {"count": 6}]
    assert {each["agent"] for each in steps} == {"uwf-bundle"}
    assert uwf("thread", "show", thread).json["status"] == "completed"


OWN = """\
import sys
from uwf_git.kit import create_agent
create_agent("own", lambda ctx: "---\\ntext: " + ctx.role.name + "\\n---\\n").main()
"""


def test_a_command_of_ones_own_and_a_human_can_be_asked_too(uwf: Uwf, config: Callable[[str], Path]) -> None:
    config(
        f"agents: {{own: {{command: {sys.executable}, args: [{write('own.py', OWN)}]}}}}\n"
        "agentOverrides: {duet: {writer: own, critic: human}}\n"
    )
    thread = begun(uwf, "duet.py", DUET)
    uwf("thread", "step", thread)
    (step,) = uwf("thread", "steps", thread).json
    assert step["output"] == {"text": "writer"}
    absent = uwf("thread", "step", thread, check=5).error
    assert "waits for a person to play role 'critic'" in absent["message"]
    shown = uwf("thread", "show", thread).json
    assert (shown["head"], shown["status"]) == (step["step"], "idle")
    uwf("verify", "--all")


READ = """\
export const descriptor = {
  name: "reads",
  description: "Has a model read.",
  roles: { reader: { description: "reads", schema: { type: "object", properties: { city: { type: "string" } } } } },
};

export async function* run(input, options) {
  const { schema } = descriptor.roles.reader;
  yield { role: "reader", content: "", meta: await options.extract(schema, "Where is it?", "In Paris, they say.") };
}
"""


def test_a_model_reads_a_text_as_the_prompt_says_and_its_tokens_are_the_steps(
    uwf: Uwf, config: Callable[[str], Path], server: ModelServer, root: Path
) -> None:
    config(
        f"providers: {{local: {{baseUrl: '{server.openai_url}', apiKeyEnv: LOCAL_KEY}}}}\n"
        "models: {small: {provider: local, name: tiny}}\ndefaultModel: small\n"
    )
    (root / ".env").write_text("LOCAL_KEY=sk-secret-0123456789\n")
    server.play([says('{"city": "Paris"}', usage={"prompt_tokens": 30, "completion_tokens": 4})])
    thread = begun(uwf, "reads.esm.js", READ)
    uwf("thread", "step", thread)
    (step,) = uwf("thread", "steps", thread).json
    assert step["output"] == {"city": "Paris"} and step["agent"] == "uwf-bundle"
    assert "Where is it?" in server.asked[0].text
    total: dict[str, Any] = uwf("stats", thread).json["total"]
    assert (total["input"], total["output"]) == (30, 4)


def test_an_interrupted_step_leaves_no_agent_behind(uwf: Uwf, config: Callable[[str], Path]) -> None:
    config(
        "agents: {slow: {command: uwf-exec, args: [sh, -c, 'echo $$ > pid; sleep 600']}}\n"
        "defaultAgent: slow\n"
    )
    thread = begun(uwf, "duet.py", DUET)
    running = commands.begin("thread", "step", thread)
    agent = commands.wait_for(Path("pid")).strip()
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    assert not commands.alive(agent)
    assert uwf("thread", "steps", thread).json == []
