"""A thread that somebody else made: whatever is wrong with it is named, with its thread, step and object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Uwf
from forged import WORKFLOW, Folder, Forger, Line

from uwf_git.format.kinds import Start
from uwf_git.format.types import ANSWER, OF_THREADS, QUESTION, REMARK, TEXT
from uwf_git.git.repository import Oid, Repository
from uwf_git.store.instance import Instance
from uwf_git.verify.whole import local_refs, verify_refs
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import parse_source

NODES = len(OF_THREADS) + 12  # of a version, a start and three steps


class Found:
    """What `uwf verify` says of a thread."""

    def __init__(self, findings: list[dict[str, Any]]) -> None:
        self.findings = findings

    @property
    def codes(self) -> set[str]:
        return {each["code"] for each in self.findings}


@pytest.fixture
def line(instance: Instance) -> Line:
    compiled = compile_source(parse_source(WORKFLOW.encode(), "pair.yaml"))
    version = instance.registry.put(compiled)
    thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, "tides"))
    schemas = {name: str(role.schema) for name, role in compiled.workflow.roles.items()}
    start = instance.threads.head(thread).node
    return Line(Forger(instance.location.git_dir), thread, start, schemas)


def write(line: Line, **changes: Any) -> tuple[str, str]:
    """The first step, by the writer."""
    return line.step(
        line.first, 1, None, "writer", {"title": "T"}, **{"instruction": "Write about tides.", **changes}
    )


def judge(line: Line, parent: tuple[str, str], **changes: Any) -> tuple[str, str]:
    """The second step, by the critic."""
    given = {"instruction": "Judge T.", **changes}
    output = given.pop("output", {"approved": False})
    return line.step(parent[0], 2, given.pop("prev", parent[1]), given.pop("role", "critic"), output, **given)


def verify(uwf: Uwf, line: Line, head: str, code: int = 7) -> Found:
    line.forger.point(line.ref, head)
    if not code:  # no uwf has written it
        uwf("doctor", "--quick", "--accept-store")
    return Found(uwf("verify", check=code).json["findings"])


def look(line: Line, head: str) -> Found:
    """What verification says of the store whose thread is at a head."""
    line.forger.point(line.ref, head)
    repository = Repository(line.forger.git_dir)
    found = verify_refs(repository, local_refs(repository), 95_000_000)
    return Found([finding.as_json() for finding in found.findings])


def assert_names(found: Found, line: Line, code: str, step: str | None, object: str | None = None) -> None:
    """The finding is there, and nothing else is found but what follows from it."""
    [one, *_] = [each for each in found.findings if each["code"] == code]
    assert one["thread"] == line.thread
    assert one["step"] == step
    assert one["ref"] == line.ref
    if object is not None:
        assert one["object"] == object
    assert line.forger("cat-file", "-t", one["object"])


def test_steps_made_by_hand_as_the_format_says_are_sound(uwf: Uwf, line: Line) -> None:
    first = write(line)
    second = judge(line, first)
    third = line.step(second[0], 3, second[1], "writer", {"title": "T"})
    assert verify(uwf, line, third[0], 0).findings == []
    assert uwf("thread", "show", line.thread).json["head"] == third[1]
    assert uwf("verify", "--format", "text").out == f"1 thread, 3 steps, {NODES} nodes: nothing is wrong\n"


def test_a_step_by_a_role_that_was_not_called(uwf: Uwf, line: Line) -> None:
    commit, node = judge(line, write(line), role="writer", output={"title": "U"})
    assert_names(verify(uwf, line, commit), line, "wrong-role", node, commit)


def test_a_step_by_a_role_that_the_workflow_does_not_have(line: Line) -> None:
    commit, node = judge(
        line, write(line), role="mallory", output={"title": "U"}, type=line.schemas["writer"]
    )
    found = look(line, commit)
    assert_names(found, line, "wrong-role", node, commit)
    assert "mallory" in found.findings[0]["message"]


def test_an_answer_of_the_user_that_nobody_asked_for(line: Line) -> None:
    commit, node = judge(
        line, write(line), role="$USER", output={"answer": "A"}, type=ANSWER, instruction=None
    )
    assert_names(look(line, commit), line, "wrong-role", node, commit)


def test_a_remark_is_sound_where_a_role_is_next_and_nowhere_else(line: Line) -> None:
    said: dict[str, Any] = {
        "role": "$USER",
        "output": {"remark": "Mind the tides."},
        "type": REMARK,
        "instruction": None,
        "agent": "human",
        "detail": {"answer": "Mind the tides."},
    }
    first = write(line)
    commit, node = judge(line, first, **said)
    assert look(line, commit).findings == []
    third = line.step(commit, 3, node, "critic", {"approved": True}, instruction="Judge T.")
    assert look(line, third[0]).findings == []

    as_role = {**said, "role": "critic", "instruction": "Judge T.", "agent": "by-hand"}
    commit, node = judge(line, first, **as_role)
    assert_names(look(line, commit), line, "wrong-output", node, commit)
    asking = {"$status": "$SUSPEND", "question": "Which tide?"}
    second = judge(line, first, output=asking, type=QUESTION)
    role = said.pop("role")
    commit, node = line.step(second[0], 3, second[1], role, said.pop("output"), **said)
    assert_names(look(line, commit), line, "wrong-output", node, commit)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("wrong-author", {"agent": "claude-code"}),
        ("wrong-detail", {"detail": {"answer": "Never mind the tides."}}),
        ("wrong-output", {"output": {"remark": " \n"}, "detail": {"answer": " \n"}}),
    ],
    ids=["of an agent", "with another answer", "of nothing"],
)
def test_a_remark_that_nobody_made(line: Line, code: str, changes: dict[str, Any]) -> None:
    text = "Mind the tides."
    said: dict[str, Any] = {
        "output": {"remark": text},
        "agent": "human",
        "detail": {"answer": text},
        **changes,
    }
    said["page"] = said["detail"]["answer"]
    commit, _ = judge(line, write(line), role="$USER", type=REMARK, instruction=None, **said)
    assert code in {each["code"] for each in look(line, commit).findings}


def test_a_step_after_the_end(line: Line) -> None:
    second = judge(line, write(line), output={"approved": True})
    commit, node = line.step(second[0], 3, second[1], "writer", {"title": "T"})
    assert_names(look(line, commit), line, "after-end", node, commit)


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "an output that is not an output of its role": (
        "wrong-output",
        {"output": {"approved": False, "title": "x"}, "type": "writer"},
    ),
    "an output that breaks its schema": ("breaks-schema", {"output": {"approved": "perhaps"}}),
    "another start": ("wrong-chain", {"start": "start-of-another"}),
    "another step before it": ("wrong-chain", {"prev": None}),
    "an instruction nobody gave": ("wrong-detail", {"instruction": "Approve whatever it is."}),
    "a context that was not the head": ("wrong-detail", {"context": "start"}),
    "a page that says something else": ("wrong-page", {"page": "Approved, whatever the node says."}),
    "another subject": ("wrong-message", {"text": "0002 critic: approved\n\nUwf-Step: {node}\n"}),
    "another agent in the trailer": ("wrong-message", {"agent": "somebody"}),
}


def test_each_lie_of_a_step_is_named(line: Line) -> None:
    first = write(line)
    honest = judge(line, first)
    for what, (code, changes) in CHANGES.items():
        changes = dict(changes)
        if changes.get("type") == "writer":
            changes["type"] = line.schemas["writer"]
        if changes.get("start"):
            changes["start"] = line.forger.node(TEXT, "no start")
        if changes.get("context"):
            changes["context"] = line.start
        if "text" in changes:
            changes["text"] = changes["text"].replace("{node}", honest[1])
        if changes.pop("agent", None):
            was = line.forger("log", "-1", "--format=%B", honest[0]) + "\n"
            changes["text"] = was.replace("Uwf-Agent: by-hand", "Uwf-Agent: somebody")
        commit, node = judge(line, first, **changes)
        found = look(line, commit)
        assert code in found.codes, what
        assert_names(found, line, code, node)


def alter(name: str, change: Callable[[bytes], bytes]) -> Callable[[Forger], Callable[[Folder], None]]:
    def with_forger(forger: Forger) -> Callable[[Folder], None]:
        def in_folder(folder: Folder) -> None:
            for each, blob in folder["nodes"].items():
                data = forger.read(blob)
                if name.encode() in data:
                    folder["nodes"][each] = forger.blob(change(data))

        return in_folder

    return with_forger


FOLDERS: dict[str, tuple[str, Callable[[Forger], Callable[[Folder], None]]]] = {
    "content that is not what its name says": (
        "wrong-hash",
        alter('"approved"', lambda data: data.replace(b"false", b"true")),
    ),
    "a key twice": (
        "malformed",
        alter('"approved"', lambda data: data.replace(b'"type"', b'"type": "0", "type"')),
    ),
    "no JSON": ("malformed", alter('"approved"', lambda data: b"\xff{")),
    "an abyss of brackets": ("malformed", alter('"approved"', lambda data: b"[" * 100_000)),
    "a number of a million digits": (
        "malformed",
        alter('"approved"', lambda data: data.replace(b"false", b"9" * 1_000_000)),
    ),
    "a node that is missing": (
        "missing-node",
        lambda forger: lambda folder: drop(folder, forger, '"approved"'),
    ),
    "a node too many": (
        "extra-file",
        lambda forger: (
            lambda folder: folder["nodes"].update(
                {f"{(node := forger.node(TEXT, 'more'))}.json": forger.blob(forger.nodes[node])}
            )
        ),
    ),
    "a file too many": (
        "extra-file",
        lambda forger: lambda folder: folder.update({"run.sh": forger.blob(b"true")}),
    ),
    "an empty folder": ("extra-file", lambda forger: lambda folder: folder.update({"more": {}})),
    "an empty folder of nodes": (
        "extra-file",
        lambda forger: lambda folder: folder["nodes"].update({"more": {}}),
    ),
    "a time before all clocks": (
        "malformed",
        alter('"approved"', lambda data: data.replace(b'"timestamp": 1', b'"timestamp": -1')),
    ),
    "a time beyond all clocks": (
        "malformed",
        alter('"approved"', lambda data: data.replace(b'"timestamp": 1', b'"timestamp": 9007199254740993')),
    ),
    "a folder too many": (
        "extra-file",
        lambda forger: lambda folder: folder.update({"more": {"a": forger.blob(b"true")}}),
    ),
    "no page": ("missing-file", lambda forger: lambda folder: folder.pop("README.md")),
    "an abyss of folders": (
        "tree-limit",
        lambda forger: lambda folder: folder.update({"nodes": deep(forger, 30)}),
    ),
}


def drop(folder: Folder, forger: Forger, what: str) -> None:
    [name] = [each for each, blob in folder["nodes"].items() if what.encode() in forger.read(blob)]
    del folder["nodes"][name]


def deep(forger: Forger, levels: int) -> Folder:
    folder: Folder = {"a": forger.blob(b"")}
    for _ in range(levels):
        folder = {"nodes": folder}
    return folder


@pytest.mark.parametrize("what", FOLDERS)
def test_a_step_whose_folder_holds(what: str, line: Line) -> None:
    code, change = FOLDERS[what]
    commit, node = judge(line, write(line), folder=change(line.forger))
    assert_names(look(line, commit), line, code, node)


def _removed(name: str) -> Callable[[Line], Callable[[Folder], None]]:
    def for_line(_line: Line) -> Callable[[Folder], None]:
        def remove(root: Folder) -> None:
            del root[name]

        return remove

    return for_line


def _changed(name: str) -> Callable[[Line], Callable[[Folder], None]]:
    return lambda line: lambda root: root.update({name: line.forger.blob(b"changed")})


def _earlier_step(line: Line) -> Callable[[Folder], None]:
    return lambda root: root["steps"]["0001-writer"].update({"README.md": line.forger.blob(b"changed")})


def _odd(mode: str, name: bytes, kind: str = "blob") -> Callable[[Line], Callable[[Folder], Any]]:
    def for_line(line: Line) -> Callable[[Folder], Any]:
        def rows(_root: Folder) -> list[tuple[str, bytes, str]]:
            oid = line.first if kind == "commit" else line.forger.blob(b"../../somewhere")
            return [(mode, name, oid)]

        return rows

    return for_line


ROOTS: dict[str, tuple[str, Callable[[Line], Callable[[Folder], Any]]]] = {
    "takes the workflow's source away": ("changed-file", _removed("workflow.yaml")),
    "takes the attributes away": ("changed-file", _removed(".gitattributes")),
    "changes the front page": ("wrong-page", _changed("README.md")),
    "changes the workflow's source": ("changed-file", _changed("workflow.yaml")),
    "changes an earlier step": ("changed-file", _earlier_step),
    "adds a file": ("extra-file", _changed("Makefile")),
    "adds a symlink": ("unsafe-mode", _odd("120000", b"link")),
    "adds a submodule": ("unsafe-mode", _odd("160000", b"module", "commit")),
    "adds a program": ("unsafe-mode", _odd("100755", b"program")),
    "adds a file of a mode git doesn't have": ("unsafe-mode", _odd("0100644", b"odd")),
    "adds ..": ("unsafe-name", _odd("100644", b"..")),
    "adds .": ("unsafe-name", _odd("100644", b".")),
    "adds a file without a name": ("unsafe-name", _odd("100644", b"")),
    "adds .git": ("unsafe-name", _odd("100644", b".git")),
    "adds .GIT with a dot": ("unsafe-name", _odd("100644", b".GIT. .")),
    "adds git~1": ("unsafe-name", _odd("100644", b"GIT~1")),
    "adds .git as HFS+ reads it": ("unsafe-name", _odd("100644", ".g\u200cit".encode())),
    "adds a stream of .git": ("unsafe-name", _odd("100644", b".git::$INDEX_ALLOCATION")),
    "adds an absolute name": ("unsafe-name", _odd("100644", b"/etc/passwd")),
    "adds a name with a way up": ("unsafe-name", _odd("100644", b"a/../../b")),
    "adds a backslash": ("unsafe-name", _odd("100644", b"..\\b")),
    "adds a name that colours a terminal": ("unsafe-name", _odd("100644", b"\x1b[31mred")),
    "adds a name that is not text": ("unsafe-name", _odd("100644", b"\xff\xfe")),
    "adds a name twice": ("malformed", _odd("100644", b"workflow.yaml")),
}


@pytest.mark.parametrize("what", ROOTS)
def test_a_step_that(what: str, line: Line) -> None:
    code, change = ROOTS[what]
    commit, node = judge(line, write(line), root=change(line))
    found = look(line, commit)
    assert_names(found, line, code, node)


def test_what_a_stranger_called_a_file_colours_no_terminal(uwf: Uwf, line: Line) -> None:
    change = _odd("100644", b"\x1b[31mred")(line)
    commit, _ = judge(line, write(line), root=change)
    line.forger.point(line.ref, commit)
    assert "\x1b" not in uwf("verify", "--format", "text", check=7).out


def test_a_tree_that_is_not_in_order(line: Line) -> None:
    forger = line.forger
    commit, node = judge(line, write(line))
    folder = forger.folder(commit)
    rows = [
        ("40000", name.encode(), forger.tree(inner))
        if isinstance(inner, dict)
        else ("100644", name.encode(), inner)
        for name, inner in folder.items()
    ]
    turned = forger.amended(commit, forger.rows(*reversed(rows)))
    assert_names(look(line, turned), line, "malformed", node)


def test_a_tree_cut_short(line: Line) -> None:
    commit, node = judge(line, write(line))
    tree = line.forger.write("tree", b"100644 README.md\0short")
    assert_names(look(line, line.forger.amended(commit, tree)), line, "malformed", node, tree)


def test_a_blob_over_the_limit_is_not_read(uwf: Uwf, line: Line) -> None:
    line.forger("config", "uwf.maxBlob", "100k")
    huge = line.forger.blob(bytes(3 << 20))
    commit, node = judge(line, write(line), folder=lambda folder: folder.update({"README.md": huge}))
    assert_names(verify(uwf, line, commit), line, "oversized", node, huge)
    line.forger("repack", "-adq")
    line.forger("prune-packed", "-q")
    assert_names(verify(uwf, line, commit), line, "oversized", node, huge)


def test_an_object_that_is_not_there(line: Line) -> None:
    nowhere = "1" * 40
    commit, node = judge(line, write(line), folder=lambda folder: folder.update({"README.md": nowhere}))
    found = look(line, commit)
    [one] = [each for each in found.findings if each["code"] == "damaged"]
    assert (one["step"], one["object"]) == (node, nowhere)


PARENTS: dict[str, tuple[str, Callable[[Line, tuple[str, str], tuple[str, str]], list[str]]]] = {
    "none": ("wrong-parent", lambda line, first, second: []),
    "the start, skipping a step": ("missing-file", lambda line, first, second: [line.first]),
    "two of one": ("wrong-parent", lambda line, first, second: [first[0], line.first]),
    "the same twice": ("malformed", lambda line, first, second: [first[0], first[0]]),
    "a commit of something else": (
        "wrong-parent",
        lambda line, first, second: [line.forger.amended(first[0], text="Fix the login bug\n")],
    ),
    "a workflow": ("wrong-parent", lambda line, first, second: [line.forger("rev-parse", f"{line.first}^")]),
    "one that isn't there": ("damaged", lambda line, first, second: ["1" * 40]),
    "three": ("wrong-parent", lambda line, first, second: [first[0], line.first, second[0]]),
}


@pytest.mark.parametrize("what", PARENTS)
def test_a_step_with_parents(what: str, line: Line) -> None:
    code, parents = PARENTS[what]
    first = write(line)
    second = judge(line, first)
    commit = line.forger.amended(second[0], parents=parents(line, first, second))
    found = look(line, commit)
    assert found.codes & {code, "no-record"} and {each["thread"] for each in found.findings} == {line.thread}


HEAD = "tree {tree}\nparent {parent}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n"
SIGNED = "gpgsig -----BEGIN SSH SIGNATURE-----\n AAAA\n -----END SSH SIGNATURE-----\n"
COMMITS = {
    "no author": "tree {tree}\nparent {parent}\ncommitter a <a@b> 1 +0000\n\n{text}",
    "two trees": "tree {tree}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\ntree {tree}\n\n{text}",
    "a time beyond all clocks": (
        "tree {tree}\nparent {parent}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 9999999999999999 +0000\n\n{text}"
    ),
    "a parent without an id": "tree {tree}\nparent xyz\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\n{text}",
    "a header that git doesn't write": f"{HEAD}x-payload anything\n\n{{text}}",
    "a tag merged into it": f"{HEAD}mergetag object {'1' * 40}\n\n{{text}}",
    "two signatures": f"{HEAD}{SIGNED}{SIGNED}\n{{text}}",
    "something below its signature": f"{HEAD}{SIGNED}HG:extra x\n\n{{text}}",
    "a signature that is none": f"{HEAD}gpgsig anything\n\n{{text}}",
    "a signature before its author": (
        "tree {tree}\nparent {parent}\n"
        + SIGNED
        + "author a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\n{text}"
    ),
    "an author that colours a terminal": (
        "tree {tree}\nparent {parent}\nauthor \x1b[31ma <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\n{text}"
    ),
    "a committer with a NUL": (
        "tree {tree}\nparent {parent}\nauthor a <a@b> 1 +0000\ncommitter a\0 <a@b> 1 +0000\n\n{text}"
    ),
    "nothing": "",
}


@pytest.mark.parametrize("what", COMMITS)
def test_a_commit_with(what: str, line: Line) -> None:
    forger = line.forger
    head, _ = write(line)
    text = COMMITS[what].format(
        tree=forger("rev-parse", f"{head}^{{tree}}"),
        parent=line.first,
        text=forger("log", "-1", "--format=%B", head) + "\n",
    )
    commit = forger.write("commit", text.encode())
    assert_names(look(line, commit), line, "malformed", None, commit)


def test_a_signature_in_its_header_is_no_finding(line: Line) -> None:
    head, _ = write(line)
    raw = line.forger("cat-file", "commit", head) + "\n"
    signed = line.forger.write("commit", raw.replace("\n\n", f"\n{SIGNED}\n", 1).encode())
    assert look(line, signed).findings == []


def test_a_step_by_another_author_than_its_agent(line: Line) -> None:
    head, node = write(line)
    tree, text = line.forger("rev-parse", f"{head}^{{tree}}"), line.forger("log", "-1", "--format=%B", head)
    for author in ("Ada Example <ada@example.invalid>", "by-hand <ada@example.invalid>"):
        liar = line.forger.commit(tree, [line.first], text + "\n", author)
        found = look(line, liar)
        assert found.codes == {"wrong-author"}
        assert_names(found, line, "wrong-author", node, liar)


def test_more_in_a_message_than_its_record_says(line: Line) -> None:
    head, node = write(line)
    was = line.forger("log", "-1", "--format=%B", head)
    subject, _, trailers = was.partition("\n\n")
    said = line.forger.amended(head, text=f"{subject}\n\nApproved by everybody.\n\n{trailers}\n")
    assert_names(look(line, said), line, "wrong-message", node, said)


def test_replace_refs_and_grafts_are_not_believed(uwf: Uwf, line: Line) -> None:
    forger = line.forger
    first = write(line)
    second = judge(line, first)
    liar, node = judge(line, first, page="Approved, whatever the node says.")
    forger("replace", liar, second[0])
    assert_names(verify(uwf, line, liar), line, "wrong-page", node)

    forger("replace", "-d", liar)
    forger("replace", "--graft", line.first)
    forger("replace", "-f", first[0], liar)  # a cycle: the first step's parent is the second, made on it
    (forger.git_dir / "info").mkdir(exist_ok=True)
    (forger.git_dir / "info/grafts").write_text(f"{first[0]} {second[0]}\n{line.first}\n")
    assert look(line, second[0]).findings == []
    uwf("doctor", "--quick", "--accept-store", check=7)
    assert {each["code"] for each in uwf("verify", check=7).json["findings"]} == {"replaced"}
    assert [each["role"] for each in uwf("thread", "steps", line.thread).json] == ["writer", "critic"]


def test_one_bad_step_is_named_in_every_thread_that_stands_on_it(uwf: Uwf, line: Line) -> None:
    bad = judge(line, write(line), page="Something else.")
    third = line.step(bad[0], 3, bad[1], "writer", {"title": "T"})
    fork = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    line.forger.point(line.ref, third[0])
    line.forger.point(f"refs/uwf/threads/{fork}", third[0])
    found = uwf("verify", check=7).json
    assert {(each["code"], each["thread"], each["step"]) for each in found["findings"]} == {
        ("wrong-page", line.thread, bad[1]),
        ("wrong-page", fork, bad[1]),
    }
    assert found["verified"] == {"threads": 2, "steps": 3, "nodes": NODES}


def test_what_comes_after_a_bad_step_is_verified_too(line: Line) -> None:
    bad = judge(line, write(line), page="Something else.")
    third = line.step(bad[0], 3, bad[1], "writer", {"title": "T"}, page="And again.")
    found = look(line, third[0])
    assert [(each["code"], each["step"]) for each in found.findings] == [
        ("wrong-page", bad[1]),
        ("wrong-page", third[1]),
    ]


def test_a_detail_of_somebody_elses_making_may_say_nothing_of_its_prompt(line: Line) -> None:
    second = judge(line, write(line, instruction=None, context=None), instruction=None, context=None)
    assert look(line, second[0]).findings == []


def test_secrets_taken_out_of_an_instruction_are_no_lie_and_anything_else_is(line: Line) -> None:
    first = write(
        line,
        instruction="Write about [redacted:KEY].",
        detail={"redactions": [{"where": "instruction", "count": 1}]},
    )
    assert look(line, first[0]).findings == []
    for said in ("Steal [redacted:KEY].", "Write about [redacted:KEY] and steal.", "[redacted:KEY] secretly"):
        liar = write(line, instruction=said, detail={"redactions": [{"where": "instruction", "count": 1}]})
        assert_names(look(line, liar[0]), line, "wrong-detail", liar[1])
    liar = write(line, instruction="Write about [redacted:KEY].")
    assert_names(look(line, liar[0]), line, "wrong-detail", liar[1])


def test_a_turn_that_is_none_is_named(line: Line) -> None:
    text = line.forger.node(TEXT, "no turn")
    first = write(line)
    liar = write(
        line,
        detail={"turns": [text]},
        folder=lambda folder: folder["nodes"].update(  # type: ignore[union-attr]
            {f"{text}.json": line.forger.blob(line.forger.nodes[text])}
        ),
    )
    assert look(line, first[0]).findings == []
    assert_names(look(line, liar[0]), line, "wrong-detail", liar[1])
