"""From a file to a Workflow node: reading, including, compiling."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.format.builtin import BUILTIN, META
from uwf_git.format.ids import name_problem
from uwf_git.format.kinds import Transition, status_of
from uwf_git.format.node import hash_of
from uwf_git.format.schema import Schema
from uwf_git.format.types import WORKFLOW
from uwf_git.workflow.compile import Compiled, InvalidWorkflow, compile_source
from uwf_git.workflow.source import parse_source, read_source

MINIMAL = """
version: 1
name: minimal
description: One role.
roles:
  worker:
    description: Works.
    systemPrompt: Work.
    outputSchema: {type: object, properties: {result: {type: string}}, required: [result]}
graph:
  $START: [{role: worker}]
  worker: [{role: $END}]
"""


def compiled(text: str, files: dict[str, str] | None = None) -> Compiled:
    return compile_source(parse_source(text.encode(), "w.yaml", lambda path: (files or {})[path].encode()))


def test_a_compiled_workflow_obeys_the_schema_of_its_type_and_hashes_to_its_hash() -> None:
    made = compiled(MINIMAL)
    assert Schema(BUILTIN[WORKFLOW]).problems(made.payload) == []
    assert made.hash == hash_of(WORKFLOW, made.payload)
    role = made.workflow.roles["worker"]
    assert made.schemas == {role.schema: {
        "type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"],
    }}  # fmt: skip
    assert role.schema == hash_of(META, made.schemas[role.schema])
    assert made.warnings == ()


def test_both_role_forms_and_both_routing_forms_may_be_mixed() -> None:
    made = compiled("""
name: mixed
description: Mixed.
roles:
  one:
    description: First.
    systemPrompt: Do one.
    outputSchema: {type: object, properties: {n: {type: integer}}}
  two:
    description: Second.
    goal: Do two.
    capabilities: [a, b]
    procedure: Step by step.
    output: A thing.
    frontmatter: {type: object, properties: {$status: {enum: [ok, bad]}}, required: [$status]}
conditions:
  big: {description: It is big., expression: "steps[-1].output.n > 3"}
graph:
  $START: {_: one}
  one:
    - {role: two, condition: big, prompt: "n was {{ n }}"}
    - {role: $END, condition: null}
  two:
    _: $END
    ok: {role: one, prompt: Again., location: "/tmp"}
    bad: two
""")
    assert made.payload["roles"]["one"].keys() == {"description", "systemPrompt", "outputSchema"}
    assert made.payload["roles"]["two"].keys() == {
        "description", "goal", "capabilities", "procedure", "output", "frontmatter",
    }  # fmt: skip
    assert made.payload["graph"]["one"] == [
        {"role": "two", "condition": "big", "prompt": "n was {{ n }}"},
        {"role": "$END", "condition": None},
    ]
    assert made.workflow.graph["$START"] == (Transition("one"),)
    assert made.workflow.graph["two"] == (
        Transition("one", None, "ok", "Again.", "/tmp"), Transition("two", None, "bad"), Transition("$END"),
    )  # fmt: skip
    assert Schema(BUILTIN[WORKFLOW]).problems(made.payload) == []


def test_layout_comments_anchors_and_x_keys_dont_change_the_hash() -> None:
    other = """
# a comment
x-note: [anything, {goes: here}]
graph:
  x-edges: 1
  worker: [{role: $END, condition: ~, x-why: done}]
  $START: [{"role": "worker"}]
x-schema: &schema
    required: ["result"]
    type: object
    properties: {result: {type: string}}
roles:
  x-base: &base {description: Works., x-owner: me}
  worker:
    <<: *base
    systemPrompt: 'Work.'
    outputSchema: *schema
description: One role.
name: minimal
"""
    assert compiled(other).hash == compiled(MINIMAL).hash


@given(st.permutations(["name: p", "description: d", "version: 1", "conditions: {}"]))
def test_the_order_of_keys_doesnt_change_the_hash(lines: list[str]) -> None:
    rest = MINIMAL.split("description: One role.\n")[1]
    assert compiled("\n".join(lines) + "\n" + rest).hash == compiled("name: p\ndescription: d\n" + rest).hash


def test_another_prompt_is_another_hash() -> None:
    assert compiled(MINIMAL.replace("Work.", "Work hard.")).hash != compiled(MINIMAL).hash


def test_words_that_old_yaml_takes_for_booleans_are_statuses() -> None:
    made = compiled("""
name: n
description: d
roles:
  asker:
    description: d
    systemPrompt: s
    outputSchema: {type: object, properties: {status: {enum: [yes, no, on, 1:30]}}, required: [status]}
graph:
  $START: {_: asker}
  asker: {yes: $END, no: asker, on: $END, 1:30: $END}
""")
    schema = next(iter(made.schemas.values()))
    assert schema["properties"]["status"]["enum"] == ["yes", "no", "on", "1:30"]
    taken = {edge.status for edge in made.workflow.graph["asker"]}
    assert all(status_of({"status": value}) in taken for value in schema["properties"]["status"]["enum"])


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / "w.yaml"


INCLUDING = MINIMAL.replace("systemPrompt: Work.", "systemPrompt: !include prompts/work.md")


def test_an_included_text_is_taken_whole_and_kept_with_the_source(tmp_path: Path) -> None:
    source = read_source(
        write(tmp_path, {"w.yaml": INCLUDING, "prompts/work.md": "Work.\r\n: no yaml {{}}\n"})
    )
    assert source.includes == {"prompts/work.md": b"Work.\r\n: no yaml {{}}\n"}
    assert compile_source(source).workflow.roles["worker"].system_prompt == "Work.\n: no yaml {{}}\n"
    again = parse_source(source.text, "elsewhere", source.includes.__getitem__)
    assert compile_source(again).hash == compile_source(source).hash


def test_included_yaml_is_data_and_may_include_what_is_beside_it(tmp_path: Path) -> None:
    text = (
        MINIMAL.split("roles:")[0] + "roles: !include parts/roles.yaml\ngraph:" + MINIMAL.split("graph:")[1]
    )
    role = (
        "worker: {description: Works., systemPrompt: !include work.md, outputSchema: !include ../schema.json}"
    )
    schema = json.dumps(
        {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
    )
    path = write(
        tmp_path, {"w.yaml": text, "parts/roles.yaml": role, "parts/work.md": "Work.", "schema.json": schema}
    )
    source = read_source(path)
    assert compile_source(source).hash == compiled(MINIMAL).hash
    assert source.includes.keys() == {"parts/roles.yaml", "parts/work.md", "schema.json"}


def test_a_finding_inside_an_included_file_names_both_places(tmp_path: Path) -> None:
    text = MINIMAL.split("roles:")[0] + "roles: !include roles.yaml\ngraph:" + MINIMAL.split("graph:")[1]
    roles = "worker:\n  description: d\n  systemPromt: s\n  outputSchema: {type: object}\n"
    with pytest.raises(InvalidWorkflow) as caught:
        compile_source(read_source(write(tmp_path, {"w.yaml": text, "roles.yaml": roles})))
    finding = next(each for each in caught.value.findings if each.code == "unknown-key")
    assert finding.line == 5
    assert finding.message.endswith("(in roles.yaml:3:3)")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../secret.md", "outside"),
        ("prompts/../../secret.md", "outside"),
        ("/etc/passwd", "not a relative path"),
        ("C:\\secret", "not a relative path"),
        (".env", "hidden"),
        ("prompts/.hidden/x", "hidden"),
        ("prompts", "not a file"),
        ("missing.md", "no file"),
        ("leads-out.md", "outside"),
        ("binary.md", "not UTF-8"),
        ("control.md", "U+001B"),
        ("w.yaml", "circular"),
        ("loop.yaml", "circular"),
        ("pipe", "not a file"),
        ("big.md", "larger than"),
        ("broken.yaml", "broken.yaml:2:1"),
    ],
)
def test_an_include_that_may_not_be_is_refused_at_its_place(tmp_path: Path, path: str, says: str) -> None:
    folder = tmp_path / "project"
    main = MINIMAL.replace("systemPrompt: Work.", f"systemPrompt: !include '{path}'")
    write(folder, {
        "w.yaml": main, "prompts/x.md": "x", ".env": "KEY=1", "prompts/.hidden/x": "x", "binary.md": b"\xff",
        "control.md": "\x1b[2J", "loop.yaml": "a: !include loop2.yaml", "loop2.yaml": "a: !include loop.yaml",
        "big.md": b"x" * ((1 << 20) + 1), "broken.yaml": "a: [\n",
    })  # fmt: skip
    (tmp_path / "secret.md").write_text("secret")
    (folder / "leads-out.md").symlink_to(tmp_path / "secret.md")
    os.mkfifo(folder / "pipe")
    with pytest.raises((Invalid, NotFound)) as caught:
        read_source(folder / "w.yaml")
    assert says in caught.value.message and "\n" not in caught.value.message
    assert ":8:19: " in caught.value.message
    assert "secret" not in caught.value.message.replace(path, "").replace("secret.md", "")


def test_includes_that_multiply_are_refused(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "w.yaml": "a: !include f7.yaml",
        "f0.yaml": "[x, x, x, x, x, x, x, x, x, x]",
    }
    for level in range(1, 8):
        files[f"f{level}.yaml"] = f"[{', '.join([f'!include f{level - 1}.yaml'] * 10)}]"
    with pytest.raises(Invalid, match="over 100000 values"):
        read_source(write(tmp_path, files))


def test_a_misspelt_file_gets_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path, {"solve-issue.yaml": MINIMAL})
    with pytest.raises(NotFound) as caught:
        read_source(tmp_path / "solve-isue.yaml")
    assert caught.value.hint == 'did you mean "solve-issue.yaml"?'
    with pytest.raises(NotFound) as caught:
        read_source(tmp_path / "other.yaml")
    assert caught.value.hint == "check the path"  # only the suffix is alike


@pytest.mark.parametrize(
    "hostile", ["folder", "big", "binary", "control", "empty", "list", "text", "open", "bomb"]
)
def test_a_file_that_is_no_workflow_gets_one_line(tmp_path: Path, hostile: str) -> None:
    path = tmp_path / "w.yaml"
    if hostile == "folder":
        path.mkdir()
    elif hostile == "big":
        with path.open("wb") as file:
            os.truncate(file.fileno(), 50 << 20)
    else:
        bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi")
        )
        path.write_bytes({
            "binary": b"\x7fELF\0\0", "control": b"a: \0\n", "empty": b"", "list": b"- 1", "text": b"hello",
            "open": b"name: [unclosed\n", "bomb": bomb.encode(),
        }[hostile])  # fmt: skip
    with pytest.raises(Invalid) as caught:
        compile_source(read_source(path))
    assert "\n" not in caught.value.message and str(path) in caught.value.message


def test_an_invalid_workflow_says_the_first_error_in_one_line_and_keeps_the_others() -> None:
    text = MINIMAL.replace("[{role: worker}]", "[{role: wroker}]").replace("version: 1", "version: 2")
    with pytest.raises(InvalidWorkflow) as caught:
        compiled(text)
    error = caught.value
    assert error.message == "w.yaml:2:10: version 2 is not supported (and 1 more)"
    assert error.hint == "write version: 1 · uwf workflow validate w.yaml"
    assert error.exit_status == 1 and error.code == "invalid"
    assert {finding.code for finding in error.findings} == {"bad-version", "unknown-role"}


def test_the_cause_is_said_and_not_its_effects() -> None:
    text = MINIMAL.replace("[{role: worker}]", "[{role: somebody-else}]")
    with pytest.raises(InvalidWorkflow) as caught:
        compiled(text)
    assert [finding.code for finding in caught.value.findings] == ["unknown-role"]
    assert caught.value.message.endswith('role "somebody-else" is not defined')


GOOD_NAMES = ["solve-issue", "a", "v1.2", "übung", "审核", "A_b", "x" * 100]
BAD_NAMES = [
    "", "-x", ".x", "a..b", "a.lock", "a.LOCK", "a.", "a b", "a/b", "../x", "a~1", "a^", "a:b", "a?", "a*", "a[b",
    "a\\b", "@{", "a\nb", "a\0", "\x1b[31m", "x" * 101, "审" * 90,
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_good_name_is_one_git_takes(name: str) -> None:
    import pygit2

    assert name_problem(name) is None
    assert pygit2.reference_is_valid_name(f"refs/uwf/workflows/{name}")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_git_or_a_shell_would_trip_over_is_refused(name: str) -> None:
    assert name_problem(name)
    for where in ("name: minimal", "worker"):
        with pytest.raises(Invalid) as caught:
            compiled(
                MINIMAL.replace(
                    where, where.replace("minimal", json.dumps(name)).replace("worker", json.dumps(name))
                )
            )
        assert "\n" not in caught.value.message and "\x1b" not in caught.value.message


@given(st.text(max_size=30))
def test_every_name_that_is_allowed_is_a_ref(name: str) -> None:
    import pygit2

    if name_problem(name) is None:
        assert pygit2.reference_is_valid_name(f"refs/uwf/workflows/{name}")


def test_a_hundred_roles_compile_to_a_hundred_roles() -> None:
    schema = "{type: object, properties: {n: {type: integer}}}"
    roles = "\n".join(
        f"  r{n}: {{description: d, systemPrompt: s, outputSchema: {schema}}}" for n in range(100)
    )
    edges = "\n".join(f"  r{n}: [{{role: {f'r{n + 1}' if n < 99 else '$END'}}}]" for n in range(100))
    made: Any = compiled(
        f"name: long\ndescription: d\nroles:\n{roles}\ngraph:\n  $START: [{{role: r0}}]\n{edges}\n"
    )
    assert len(made.workflow.roles) == 100 and len(made.schemas) == 1
