"""What verification says of bundles: whether they are what they say they are, and nothing by running them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_files import DEBATE
from cli_samples import write
from conftest import Uwf
from forged import Forger, Line

from uwf_git.ext.code.contract import compile_bundle
from uwf_git.format import cbor
from uwf_git.format.kinds import Start, parse_workflow
from uwf_git.format.node import hash_of
from uwf_git.format.types import CODE, RESULT
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance

pytestmark = pytest.mark.needs("bwrap", "node")

VERSION = "refs/uwf/workflows/debate"


@pytest.fixture
def line(instance: Instance) -> Line:
    """A thread of the bundle that is lengthened by hand."""
    compiled = compile_bundle(Path(write("debate.esm.js", DEBATE)), instance.config)
    version = instance.registry.put(compiled)
    thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, "Tabs or spaces?"))
    schemas = {name: str(role.schema) for name, role in compiled.workflow.roles.items()}
    start = instance.threads.head(thread).node
    return Line(Forger(instance.location.git_dir), thread, start, schemas)


def codes(uwf: Uwf) -> set[str]:
    """The codes of what is found in a store where something is wrong."""
    return {each["code"] for each in uwf("verify", check=7).json["findings"]}


def test_a_thread_of_a_bundle_is_sound_and_told_not_to_be_replayed_once(uwf: Uwf) -> None:
    uwf("workflow", "put", write("debate.esm.js", DEBATE))
    thread = uwf("run", "debate", "-p", "Tabs or spaces?").lines[0]["thread"]
    found = uwf("verify", "--strict").json
    assert (found["findings"], found["warnings"]) == ([], [])
    assert [(each["code"], each["thread"]) for each in found["notes"]] == [("coded", thread)]
    assert f"coded  thread {thread}: routed by code: not replayed" in uwf("verify", "--format", "text").out


def test_a_step_is_of_one_of_the_roles_and_none_comes_after_the_result(uwf: Uwf, line: Line) -> None:
    first = line.step(line.first, 1, None, "pro", {"text": "T"})
    stranger = line.step(first[0], 2, first[1], "mallory", {"text": "U"}, type=line.schemas["pro"])
    line.forger.point(line.ref, stranger[0])
    assert "wrong-role" in codes(uwf)
    ended = line.step(first[0], 2, first[1], "$END", {"done": True}, type=RESULT)
    after = line.step(ended[0], 3, ended[1], "con", {"text": "V"})
    line.forger.point(line.ref, after[0])
    assert "after-end" in codes(uwf)
    answered = line.step(first[0], 2, first[1], "$USER", {"text": "V"}, type=line.schemas["pro"])
    line.forger.point(line.ref, answered[0])
    assert "wrong-role" in codes(uwf)
    other = line.step(first[0], 2, first[1], "con", {"other": 1}, type=RESULT)
    line.forger.point(line.ref, other[0])
    assert "wrong-output" in codes(uwf)


@pytest.mark.parametrize(
    ("path", "code"), [("workflow.esm.js", "other-source"), ("workflow/README.md", "wrong-page")]
)
def test_a_file_or_page_that_is_not_the_one_of_the_node(uwf: Uwf, line: Line, path: str, code: str) -> None:
    root = line.forger.folder(VERSION)
    at = root
    *folders, name = path.split("/")
    for each in folders:
        at = at[each]
    at[name] = line.forger.blob(b"export const another = 1;\n")
    line.forger.point(VERSION, line.forger.amended(VERSION, line.forger.tree(root)))
    assert code in codes(uwf)
    error = uwf("workflow", "trust", "debate", "--yes", check=None)
    assert path != "workflow.esm.js" or error.code == 7


def test_another_file_than_the_trusted_one_is_told_everywhere_until_that_is_put_again(
    uwf: Uwf, instance: Instance
) -> None:
    file = write("debate.esm.js", DEBATE)
    uwf("workflow", "put", file)
    forger = Forger(instance.location.git_dir)
    root = forger.folder(VERSION)
    root["workflow.esm.js"] = forger.blob(b"export const another = 1;\n")
    forger.point(VERSION, forger.amended(VERSION, forger.tree(root)))
    wrong = "is not the file of code"
    (listed,) = uwf("workflow", "list", check=7).json
    assert (listed["trusted"], wrong in listed["problem"]) == (False, True)
    assert wrong in uwf("workflow", "list", "--format", "text", check=7).out
    assert uwf("workflow", "show", "debate").json["trusted"] is False
    assert wrong in uwf("workflow", "show", "debate", "--source").err
    assert wrong in uwf("workflow", "trust", "debate", "--yes", check=7).error["message"]
    for quick in ((), ("--quick",)):
        checks = uwf("doctor", *quick, check=7).json
        assert [each["check"] for each in checks if wrong in each["message"]] == ["workflows"]

    uwf("doctor", "--accept-store", check=None)  # the forgery, which set the head back
    assert uwf("workflow", "put", file).json["trusted"] is True
    assert [each["trusted"] for each in uwf("workflow", "history", "debate").json] == [True, False]
    assert uwf("run", "debate", "-p", "Tabs or spaces?").lines
    assert wrong not in uwf("doctor", check=None).out


def test_a_bundle_with_roles_that_put_would_refuse(uwf: Uwf, instance: Instance) -> None:
    compiled = compile_bundle(Path(write("debate.esm.js", DEBATE)), instance.config)
    roles = {"$USER" if name == "con" else name: role for name, role in compiled.payload["roles"].items()}
    payload = cbor.normalise({**compiled.payload, "roles": roles})
    forged = compiled._replace(payload=payload, hash=hash_of(CODE, payload), workflow=parse_workflow(payload))
    instance.registry.put(forged)
    assert "bad-source" in codes(uwf)
