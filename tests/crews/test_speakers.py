"""Who speaks in a step of a crew's workflow, beside the agent that does it: in commits, on pages, in lines and JSON."""

from __future__ import annotations

from commands import git
from conftest import Uwf
from crew_histories import begin, plan
from crew_packages import bmad
from forged import Forger

from uwf_git.ext.crews.compile import compile_crew
from uwf_git.ext.crews.package import from_files
from uwf_git.format.casting import Cast
from uwf_git.format.kinds import Start
from uwf_git.store.instance import Instance

ADA, TOM = {"id": "ada", "name": "Ada"}, {"id": "tom", "name": "Tom"}


def says(output: str) -> str:
    """An agent that answers with some fields."""
    return f"uwf-exec --stdin none printf '%s' '{output}'"


def test_a_node_speaks_as_its_own_persona_else_as_the_threads() -> None:
    flow = plan()
    said = [Cast(flow, "ada").role(role).persona for role in ("sketch", "check", "$USER")]
    assert [who and who.name for who in said] == ["Ada", "Tom", None]
    assert Cast(flow, "nobody").role("sketch").persona is None


def test_a_step_is_by_the_persona_and_the_agent_wherever_it_is_named(instance: Instance, uwf: Uwf) -> None:
    thread = begin(instance)
    store = str(instance.location.git_dir)
    first = uwf("thread", "step", thread, "--agent", says('{"summary": "A week"}'), "--format", "text")
    assert first.out == "   1  sketch by Ada (uwf-exec): A week  → check\n"
    made = uwf("thread", "step", thread, "--agent", says('{"summary": "Fine"}'), "--format", "json").json
    assert (made["role"], made["agent"], made["persona"]) == ("check", "uwf-exec", TOM)

    authors = git("--git-dir", store, "log", "--format=%an <%ae>", "-2", f"refs/uwf/threads/{thread}")
    assert authors.splitlines() == [
        "Tom (uwf-exec) <uwf-exec@agents.invalid>",
        "Ada (uwf-exec) <uwf-exec@agents.invalid>",
    ]
    page = git("--git-dir", store, "show", f"refs/uwf/threads/{thread}:README.md")
    assert "| Tom (`uwf-exec`) |" in page
    assert "by Tom (`uwf-exec`)" in uwf("thread", "read", thread).out
    assert "step 2, check by Tom (uwf-exec)" in uwf("thread", "show", thread, "--format", "text").out
    assert uwf("thread", "show", thread, "--format", "json").json["persona"] == TOM
    assert [each["persona"] for each in uwf("thread", "steps", thread, "--format", "json").json] == [ADA, TOM]
    assert "Tom (uwf-exec)" in uwf("thread", "steps", thread, "--format", "text").out
    assert uwf("thread", "step-details", made["head"], "--format", "json").json["persona"] == TOM
    assert instance.store.get(made["head"]).payload["agent"] == "uwf-exec", "the node names the program"


def test_a_failed_attempt_is_the_personas_too(instance: Instance, uwf: Uwf) -> None:
    thread = begin(instance, "tom")
    uwf("thread", "step", thread, "--agent", says('{"summary": "x", "next": "never"}'), check=6)
    ref = f"refs/uwf/attempts/{thread}"
    store = str(instance.location.git_dir)
    assert git("--git-dir", store, "log", "--format=%an", "-1", ref) == "Tom (uwf-exec)"
    page = git("--git-dir", store, "show", f"{ref}:attempts/0001-sketch/README.md")
    assert "by Tom (`uwf-exec`): " in page


def test_verify_takes_the_persona_with_the_agent_and_nobody_else(instance: Instance, uwf: Uwf) -> None:
    (compiled,) = compile_crew(from_files("trip", bmad())).workflows.values()
    version = instance.registry.commit_unregistered(compiled)
    node = instance.store.put(*Start(compiled.hash, "Plan it.", persona="mary").typed_payload())
    thread = instance.threads.fork(instance.threads.begin(version, node, None))
    uwf("thread", "step", thread, "--agent", says('{"summary": "x", "variables": []}'), check=6)
    uwf("thread", "step", thread, "--agent", says('{"summary": "Drafted"}'))
    uwf("thread", "step", thread, "--agent", says('{"summary": "Fine", "next": "good"}'))
    assert uwf("verify").json["findings"] == []

    forger = Forger(instance.location.git_dir)
    ref = f"refs/uwf/threads/{thread}"
    made = forger("rev-parse", ref)
    tree, before = forger("rev-parse", f"{made}^{{tree}}"), forger("rev-parse", f"{made}^")
    text = forger("log", "-1", "--format=%B", made) + "\n"
    for author in ("uwf-exec", "Mary (uwf-exec)", "Tom (uwf-claude-code)", "Tom"):
        forger.point(ref, forger.commit(tree, [before], text, f"{author} <uwf-exec@agents.invalid>"))
        findings = uwf("verify", check=7).json["findings"]
        (found,) = (each for each in findings if each["code"] != "rolled-back")  # which the witness adds
        assert found["code"] == "wrong-author"
        assert found["message"].endswith("the agent 'Tom (uwf-exec)'")
