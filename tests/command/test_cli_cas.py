"""`uwf cas`: nodes by hash, with the output of json-cas."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import Uwf

from uwf_git.store.instance import Instance

POINTER = {
    "title": "Pointer",
    "type": "object",
    "properties": {"to": {"type": "string", "format": "cas_ref"}},
    "required": ["to"],
}


def test_a_node_is_put_kept_and_read_back(uwf: Uwf, instance: Instance) -> None:
    hash_ = uwf("cas", "put", "Text", '"hello"').json["hash"]
    assert uwf("cas", "put", "text", "-", input='"hello"').json == {"hash": hash_}
    node = uwf("cas", "get", hash_[:6].lower()).json
    assert node.keys() == {"type", "payload", "timestamp"}
    assert node["payload"] == "hello"
    assert uwf("cas", "has", hash_).json == {"exists": True}
    assert uwf("cas", "refs", hash_).json == {"refs": []}

    # Nothing but the pin keeps it: git may collect what it likes, and the index may be lost.
    subprocess.run(["git", "--git-dir", instance.location.git_dir, "gc", "-q", "--prune=now"], check=True)
    for file in (instance.location.git_dir / "uwf").glob("index.db*"):
        file.unlink()
    assert uwf("cas", "get", hash_).json == node


def test_a_process_that_opens_no_store_knows_the_types_of_the_format() -> None:
    code = "from uwf_git.api import nodes; print(nodes.schema_of_type('StepNode', lambda: 1 / 0).payload['title'])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "StepNode\n"


def test_a_type_of_ones_own_is_obeyed_and_its_references_are_followed(uwf: Uwf) -> None:
    text = uwf("cas", "put", "Text", '"hello"').json["hash"]
    kind = uwf("cas", "put", "JSON Schema", json.dumps(POINTER)).json["hash"]
    node = uwf("cas", "put", kind[:8], json.dumps({"to": text})).json["hash"]
    assert uwf("cas", "refs", node).json == {"refs": [text]}
    walked = uwf("cas", "walk", node).json["hashes"]
    assert walked[0] == node
    assert {text, kind} < set(walked)
    assert len(walked) == len(set(walked))

    listed = {each["hash"]: each for each in uwf("cas", "schema", "list").json}
    assert (listed[kind]["title"], listed[kind]["builtin"]) == ("Pointer", False)
    assert uwf("cas", "schema", "get", kind).json == POINTER
    assert uwf("cas", "schema", "get", "stepnode").json["title"] == "StepNode"
    assert uwf("cas", "reindex").json["status"] == "ok"
    assert uwf("cas", "refs", node).json == {"refs": [text]}


def test_hash_computes_and_stores_nothing(uwf: Uwf, root: Path) -> None:
    computed = uwf("cas", "hash", "Text", '"hello"').json["hash"]
    assert uwf("cas", "hash", "Text", "-", input='"hello"').json["hash"] == computed
    # The golden vector of that text and type.
    assert uwf("cas", "hash", "4K9WEA7FSH41E", '"hello"').json == {"hash": "FVX1G9KC5RGSA"}
    assert not root.exists()
    assert uwf("cas", "put", "Text", '"hello"').json["hash"] == computed
    absent = uwf("cas", "hash", "Text", '"never put"').json["hash"]
    assert uwf("cas", "has", absent).json == {"exists": False}
    assert uwf("cas", "has", absent[:6]).json == {"exists": False}


def test_what_must_not_be_stored_is_refused(uwf: Uwf, instance: Instance, hermetic: Path) -> None:
    kind = uwf("cas", "put", "JSON Schema", json.dumps(POINTER)).json["hash"]
    before = sorted(path for path in hermetic.rglob("*") if "index.db" not in path.name)
    for arguments, status in (
        ((kind, '{"to": "0000000000000"}'), 1),  # dangling
        ((kind, "{}"), 1),  # breaks its schema
        (("0000000000000", "1"), 3),  # an unknown type
        (("../../escaped", "1"), None),
        (("../../../../../escaped", "1"), None),
        (("Tex", '"x"'), None),
        (("Text", "{not json"), 1),
        (("Text", '"\\ud800"'), 1),
        (("Text", '"a" "b"'), 1),
        (("JSON Schema", '{"type": "nonsense"}'), 1),
        (("Text", "9007199254740993"), 1),
    ):
        refused = uwf("cas", "put", *arguments, check=status)
        assert refused.code in (1, 3), arguments
        assert refused.out == ""
        assert len(refused.err.splitlines()) == 1
    assert "Text" in uwf("cas", "put", "Texd", '"x"', check=3).error["hint"]
    after = sorted(path for path in hermetic.rglob("*") if "index.db" not in path.name)
    assert after == before


def test_unknown_and_ambiguous_hashes_are_told_apart(uwf: Uwf, instance: Instance) -> None:
    hashes = [instance.store.put("8451C8DVPAGHX", f"text {number}") for number in range(40)]  # type: ignore[arg-type]
    assert uwf("cas", "get", "0000000000000", check=3).error["code"] == "not_found"
    assert uwf("cas", "get", hashes[0][:2], check=1).error["code"] == "invalid"
    assert uwf("cas", "get", "not-a-hash", check=3).error["code"] == "not_found"
    assert uwf("cas", "get", hashes[0]).json["payload"] == "text 0"
