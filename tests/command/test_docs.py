"""What the documents say is so: their shell examples run and print that, their links lead somewhere, and
their tables agree with the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from conftest import EXAMPLES, REPOSITORY, Uwf
from interop import GUIDES
from shell_session import File, Mismatch, Session, parse
from uwf_cli.tree import uwf as command_tree
from warm import shared as warm_uwf

from uwf_git.base import errors
from uwf_git.config.settings import FIELDS, OVERRIDES, TEXTS
from uwf_git.format import cbor, yaml12
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.node import hash_of, parse_json
from uwf_git.workflow.expression import check_expression

DOCUMENTS = sorted(
    path
    for where in ("*.md", "docs/**/*.md", "examples/**/*.md", "cli/uwf_cli/guides/*.md")
    for path in REPOSITORY.glob(where)
)
REFERENCE = REPOSITORY / "docs" / "reference" / "commands"
FLEETS = REFERENCE / "fleets.md"
WITH_EXAMPLES = [
    path
    for path in DOCUMENTS
    if "```console" in path.read_text(encoding="utf-8")
    and path.parent != REFERENCE
    and str(path.relative_to(REPOSITORY)) not in GUIDES
]
_NAMED = [str(path.relative_to(REPOSITORY)) for path in DOCUMENTS]


@pytest.fixture
def folder(hermetic: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, as the root of a checkout, in which nothing is configured."""
    work = hermetic / "work"
    if (warm := warm_uwf()) is not None:
        (hermetic / "bin").mkdir()
        warm.program(hermetic / "bin" / "uwf")
        monkeypatch.setenv("PATH", f"{hermetic / 'bin'}{os.pathsep}{os.environ['PATH']}")
    shutil.copytree(EXAMPLES, work / "examples")
    shutil.copytree(REPOSITORY / "docs" / "audit", work / "docs" / "audit")
    monkeypatch.delenv("UWF_STORAGE_ROOT")
    return work


@pytest.fixture
def session(folder: Path) -> Iterator[Session]:
    running = Session(folder, os.environ)
    yield running
    running.close()


@pytest.fixture
def terminal(folder: Path) -> Iterator[Session]:
    running = Session(folder, os.environ, terminal=True)
    yield running
    running.close()


@pytest.mark.timeout(400)  # some seventy processes one after the other
@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_a_terminal_shows_what_a_document_says(path: Path, terminal: Session) -> None:
    commands = terminal.play(path.read_text(encoding="utf-8"))
    terminal.need_all()
    assert commands


@pytest.mark.timeout(400)
def test_the_examples_of_the_command_reference_print_what_it_says(session: Session) -> None:
    pages = [REFERENCE / "README.md", *(REFERENCE / f"{name}.md" for name in generator().PAGES)]
    assert {*pages} == {*REFERENCE.glob("*.md")}
    play(session, *(page for page in pages if page != FLEETS))


@pytest.mark.extended
@pytest.mark.timeout(400)
def test_the_examples_of_fleets_in_the_command_reference_print_what_it_says(session: Session) -> None:
    play(session, FLEETS)


def play(session: Session, *pages: Path) -> None:
    for page in pages:
        try:
            assert session.play(page.read_text(encoding="utf-8")) or page.name in ("README.md", "trust.md")
        except Mismatch as mismatch:
            raise Mismatch(f"{page.name}: {mismatch}") from None
    session.need_all()


def test_the_command_reference_has_the_help_of_today() -> None:
    pages = generator().files()
    assert {path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text} == set()


def test_the_page_of_messages_has_those_of_the_sources() -> None:
    messages = _program("messages.py")
    assert messages.PAGE.read_text(encoding="utf-8") == messages.page()
    listed = list(messages.messages())
    assert len(listed) > 700 and all(each.code and "can't" not in each.message for each in listed)


def test_the_page_of_the_face_for_extensions_has_its_names() -> None:
    face = _program("plugin.py")
    assert face.PAGE.read_text(encoding="utf-8") == face.page()


@cache
def generator() -> ModuleType:
    return _program("commands/generate.py")


def _program(name: str) -> ModuleType:
    """A program of the documents' folder, as a module."""
    spec = spec_from_file_location(Path(name).stem, REPOSITORY / "docs" / "reference" / name)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md", "docs/guides/workflows.md"])
def test_a_document_that_shows_commands_has_examples_that_run(name: str) -> None:
    assert REPOSITORY / name in WITH_EXAMPLES


def test_the_figures_that_the_readme_compares_are_of_the_benchmarks_page() -> None:
    row = re.compile(r"^\| (?:a step of|the disk of) .*$", re.MULTILINE)
    cited = [
        (figure, other)
        for line in row.findall((REPOSITORY / "README.md").read_text(encoding="utf-8"))
        for figure, other in re.findall(r"\| ([\d.]+ (?:ms|MB))(?: \((\w+)\))? ", line)
    ]
    assert len(cited) == 6
    measured = (REPOSITORY / "docs" / "reference" / "benchmarks.md").read_text(encoding="utf-8").splitlines()
    for figure, other in cited:
        assert any(f"| {figure} |" in line and f"/ {other}" in line for line in measured), figure


def test_the_guide_has_the_workflow_of_the_examples() -> None:
    shipped = REPOSITORY / "cli" / "uwf_cli" / "guides" / "example.yaml"
    assert shipped.read_bytes() == (EXAMPLES / "solve-issue.yaml").read_bytes()


def test_the_python_example_of_the_readme_runs(uwf: Uwf, hermetic: Path) -> None:
    (found,) = re.findall(
        r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert len(found.splitlines()) == 8
    Path("solve-issue.yaml").write_text(uwf("guide", "example", "--format", "text").out)
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2].startswith("5 reviewer ") and "Completed" in done.stdout


@pytest.mark.parametrize("name", _NAMED)
def test_every_link_within_the_repository_leads_somewhere(name: str) -> None:
    text = _without_blocks((REPOSITORY / name).read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (REPOSITORY / name).parent / path if path else REPOSITORY / name
        assert file.exists(), f"{name} links to {target}"
        if anchor:
            assert anchor in _anchors(file), f"{name} links to {target}"


def test_a_page_has_at_most_two_thousand_words_unless_it_is_reference() -> None:
    docs = REPOSITORY / "docs"
    words = {
        path.relative_to(docs).as_posix(): len(path.read_text(encoding="utf-8").split())
        for path in docs.rglob("*.md")
        if path.parts[len(docs.parts)] != "reference"
    }
    assert {name for name, count in words.items() if count > 2000} == set()


def test_the_navigation_of_the_site_has_every_page_once() -> None:
    site = yaml12.load((REPOSITORY / "mkdocs.yml").read_bytes(), "mkdocs.yml").data
    listed = list(_leaves(site["nav"]))
    pages = {path.relative_to(REPOSITORY / "docs").as_posix() for path in (REPOSITORY / "docs").rglob("*.md")}
    assert sorted(pages - {*listed}) == [], "add a line for it to `nav` in mkdocs.yml"
    assert [name for name in listed if listed.count(name) > 1] == []


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(part)


@pytest.mark.parametrize("name", _NAMED)
def test_every_test_that_a_document_names_is_there(name: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (REPOSITORY / name).read_text(encoding="utf-8")))
    assert named <= _tests(), named - _tests()
    assert named or not name.startswith("docs/inside/threats")


@cache
def _tests() -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py"))
    return {found for text in texts for found in re.findall(r"^def (test_\w+)\(", text, flags=re.MULTILINE)}


def _without_blocks(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1`*$", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchors(path: Path) -> set[str]:
    """The anchors that forges make of headings."""
    headings = re.findall(r"^#+ (.*)$", _without_blocks(path.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join(("uwf", *path, name)), command


COMMANDS = dict(_commands(command_tree))
SHARED = ("format", "as_json", "root", "debug", "help")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented_and_shown_at_work(name: str) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.md")))
    found = re.search(rf"^## `{name}(?![\w-]| [a-z]).*?(?=^## `|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/commands has no section for {name}"
    section = found.group()
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option) and option.name not in SHARED:
            assert f"{option.opts[-1]}" in section, f"{name}: {option.opts[-1]} is not documented"
    ran = [step.command for step in parse(section) if hasattr(step, "command")]
    assert any(name in each for each in ran), f"{name} is not shown at work"


def _statuses() -> dict[str, int]:
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    return {each.code: each.exit_status for each in classes if issubclass(each, errors.UwfError)}


def test_the_exit_statuses_in_the_documentation_are_those_of_the_errors() -> None:
    text = (REFERENCE / "README.md").read_text(encoding="utf-8")
    table = text.split("## Exit statuses")[1].split("\n## ")[0]
    documented = {
        code: int(row.split("|")[1])
        for row in table.splitlines()
        if re.match(r"\| *\d", row)
        for code in re.findall(r"`([A-Za-z_]+)`", row.split("|")[2])
    }
    actual = _statuses()
    assert {code: documented.get(code) for code in actual} == actual


def test_the_hashes_in_the_format_document_are_right() -> None:
    text = (REPOSITORY / "docs" / "reference" / "format.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| name \| hash \| what \|\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    types = dict(re.findall(r"^\| ([\w ]+) \| `([0-9A-Z]{13})` \|", table, flags=re.MULTILINE))
    assert types == {schema["title"]: node for node, schema in BUILTIN.items()}
    vectors = re.findall(
        r"^\| `([0-9A-Z]{13})` \| `(.*)` \| `([0-9a-f]+)` \| `([0-9A-Z]{13})` \|", text, flags=re.MULTILINE
    )
    assert len(vectors) >= 5
    for kind, payload, encoded, hashed in vectors:
        value = parse_json(payload)
        assert (cbor.encode(value).hex(), hash_of(kind, value)) == (encoded, hashed)


def test_every_setting_is_documented() -> None:
    text = (REPOSITORY / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    for key in (*FIELDS, *TEXTS, *OVERRIDES, *(field for fields in FIELDS.values() for field in fields)):
        assert re.search(rf"\b{key}\b", text), f"configuration.md doesn't mention {key}"


def test_the_agent_of_fifteen_lines_has_no_more_and_corrects_itself(uwf: Uwf, hermetic: Path) -> None:
    source = EXAMPLES / "agents" / "shout.py"
    assert len([line for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]) <= 15
    document = (REPOSITORY / "docs" / "guides" / "writing-agents.md").read_text(encoding="utf-8")
    workflow = next(step for step in parse(document) if isinstance(step, File) and step.name == "loud.yaml")
    (hermetic / "loud.yaml").write_text(workflow.text, encoding="utf-8")
    thread = uwf("thread", "start", hermetic / "loud.yaml", "-p", "is anybody there?").json["thread"]
    done = uwf("thread", "step", thread, "--agent", f"python {source}").json
    assert (done["done"], done["status"]) == (True, "completed")
    step = uwf("thread", "step-details", done["head"], "--format", "json").json
    assert step["agent"] == "uwf-shout"
    assert step["output"]["value"] == {"text": "IS ANYBODY T"}
    assert step["detail"]["value"]["extraction"] == "correction"


def test_any_program_becomes_an_agent_by_the_pipe(uwf: Uwf) -> None:
    agent = f"python {EXAMPLES / 'agents' / 'pipe.py'} sed -n s/^summary:.*/nothing/p"
    thread = uwf("thread", "start", EXAMPLES / "analyse.yaml", "-p", "look").json["thread"]
    failed = uwf("thread", "step", thread, "--agent", agent, check=6)
    assert "without a valid output" in failed.error["message"]
    answer = "---\nsummary: fine\nfindings: []\nopenQuestions: []\n---\nLooked."
    agent = f"python {EXAMPLES / 'agents' / 'pipe.py'} printf '{answer}'"
    assert uwf("thread", "step", thread, "--agent", agent).json["done"]


def test_every_expression_in_the_documentation_can_be_evaluated() -> None:
    text = (REPOSITORY / "docs" / "guides" / "workflows.md").read_text(encoding="utf-8")
    expressions = re.findall(r"^\| `(.*steps.*)` \|", text, flags=re.MULTILINE)
    assert len(expressions) >= 5
    assert {expression: check_expression(expression) for expression in expressions} == dict.fromkeys(
        expressions
    )


@pytest.mark.parametrize("name", _NAMED)
def test_every_piece_of_yaml_in_a_document_can_be_read(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    for body in re.findall(r"^```yaml.*?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        assert yaml12.load(body.encode(), name).data


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_a_file_of_the_repository_is_shown_as_it_is(path: Path) -> None:
    shown = [step for step in parse(path.read_text(encoding="utf-8")) if isinstance(step, File)]
    for file in shown:
        if (REPOSITORY / file.name).exists():
            assert file.text == (REPOSITORY / file.name).read_text(encoding="utf-8")


# The runner itself


def test_a_session_reports_output_that_differs(session: Session) -> None:
    with pytest.raises(Mismatch, match="line 2"):
        session.play("```console\n$ echo one\ntwo\n```\n")


def test_a_session_reports_output_that_the_document_leaves_out(session: Session) -> None:
    with pytest.raises(Mismatch):
        session.play("```console\n$ echo one\n```\n")


def test_a_session_reports_a_failure_that_is_not_shown(session: Session) -> None:
    with pytest.raises(Mismatch, match="exited with 3"):
        session.play("```console\n$ (exit 3)\n$ echo on\non\n```\n")
    session.play("```console\n$ (exit 3)\n$ echo $?\n3\n```\n")


def test_a_session_reports_a_second_id_where_the_first_was_meant(session: Session) -> None:
    one, other = "0" + "1" * 25, "0" + "2" * 25
    document = (
        "```console\n$ echo {}\n01M7YCW2NNXR0V5C44GHK6D5T3\n$ echo {}\n01M7YCW2NNXR0V5C44GHK6D5T3\n```\n"
    )
    session.play(document.format(one, one))
    with pytest.raises(Mismatch):
        session.play(document.format(one, other))


def test_a_session_puts_the_real_id_where_the_document_has_its_own(session: Session) -> None:
    document = "```console\n$ echo 0{}\n01M7YCW2NNXR0V5C44GHK6D5T3\n$ echo 01M7YCW2\n0{}\n```\n"
    session.play(document.format("1" * 25, "1" * 25))


def test_a_session_keeps_folder_variables_and_files(session: Session) -> None:
    session.play(
        "```text file=in/it.txt\nhello\n```\n```console\n$ cd in\n$ word=$(cat it.txt)\n$ echo $word\nhello\n```\n"
    )


def test_dots_stand_for_what_they_leave_out_and_nothing_else(session: Session) -> None:
    session.play("```console\n$ seq 5\n1\n...\n5\n$ echo a-b-c\na…c\n```\n")
    with pytest.raises(Mismatch):
        session.play("```console\n$ seq 5\n1\n...\n4\n```\n")
