"""Which threads: what ids and filters stand for, how threads are listed, and what is done to several of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ASKS, PAIR, on_terminal, scripted, write
from conftest import Uwf
from spent_threads import assistant, attempt, start, step

from uwf_git.store.instance import Instance


@pytest.fixture
def thread(uwf: Uwf) -> str:
    """A completed thread of four steps."""
    id_: str = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "# Task\n\nWrite a line").json["thread"]
    script = "\n".join(
        f"- {{ role: {role}, output: {output} }}"
        for role, output in (
            ("writer", "{ text: a }"),
            ("critic", "{ approved: false }"),
            ("writer", "{ text: b }"),
            ("critic", "{ approved: true }"),
        )
    )
    uwf("thread", "run", id_, "--agent", scripted(script))
    return id_


def test_an_empty_store_says_how_a_thread_begins(uwf: Uwf, instance: Instance) -> None:
    for options in ((), ("--all",)):
        listed = uwf("thread", "list", *options, "--format", "text")
        assert "no threads yet" in listed.out and "uwf thread start" in listed.out


def test_threads_are_listed_newest_first_and_in_pages(uwf: Uwf, thread: str) -> None:
    ids = [uwf("thread", "start", "pair.yaml", "-p", f"task {number}").json["thread"] for number in range(3)]
    uwf("workflow", "put", write("other.yaml", PAIR.replace("name: pair", "name: other")))
    other = uwf("thread", "start", "other", "-p", "x").json["thread"]
    active = [other, *reversed(ids)]

    def listed(*arguments: str) -> list[str]:
        return [each["thread"] for each in uwf("thread", "list", *arguments).json]

    assert listed() == active
    assert listed("--all") == [*active, thread]
    assert listed("--limit", "2") == active[:2]
    assert listed("--limit", "2", "--offset", "1") == active[1:3]
    assert listed("--offset", "9") == listed("--limit", "0") == []
    assert listed("--workflow", "other") == [other]
    assert listed("--status", "completed") == [thread]
    assert listed("--status", "waiting") == []
    assert "idle" in uwf("thread", "list", "--status", "odd", check=2).error["message"]

    items = uwf("thread", "list", "--all").json
    assert listed("--workflow", items[0]["workflow"][:6], "--all") == [other]
    assert [*items[0]] == [
        *("thread", "workflow", "head", "status", "name", "title", "author", "steps", "role", "agent"),
        *("rehearsed", "cost", "unpriced", "updated", "parent"),
        *("project", "projectId"),
        *("started", "seconds", "now", "line", "lineKind", "silent"),
    ]
    assert (items[-1]["title"], items[-1]["author"]) == ("Task", "Ada Example <ada@example.invalid>")
    assert (items[-1]["agent"], items[-1]["rehearsed"], items[-1]["cost"]) == ("uwf-rehearse", 4, None)
    assert (items[-1]["name"], items[-1]["steps"], items[-1]["role"]) == ("pair", 4, "critic")
    text = uwf("thread", "list", "--format", "text").out.splitlines()
    assert [line.split()[0] for line in text[1:]] == active


def test_the_beginning_of_an_id_is_enough_if_it_is_one(uwf: Uwf, thread: str) -> None:
    assert uwf("thread", "show", thread.lower()).json["thread"] == thread
    assert uwf("thread", "show", thread[:21]).json["thread"] == thread
    other = uwf("thread", "start", "pair.yaml", "-p", "x").json["thread"]
    shared = next(number for number, pair in enumerate(zip(thread, other, strict=True)) if pair[0] != pair[1])
    ambiguous = uwf("thread", "show", thread[:shared], check=2)
    assert thread in ambiguous.error["message"] and other in ambiguous.error["message"]
    for text, status in (("01", 3), ("../../x", 3), ("I" * 26, 1), ("8" * 26, 1)):
        uwf("thread", "show", text, check=status)


def test_the_end_of_an_id_and_its_place_among_the_newest_name_a_thread(uwf: Uwf, thread: str) -> None:
    ids = [uwf("thread", "start", "pair.yaml", "-p", f"task {number}").json["thread"] for number in range(3)]
    newest = [*reversed(ids), thread]

    def shown(text: str) -> str:
        return str(uwf("thread", "show", text).json["thread"])

    assert [shown(each[-9:].lower()) for each in newest] == newest
    assert [shown(text) for text in ("@", "@1", "@2", "@3", "@4")] == [newest[0], *newest]
    beyond = uwf("thread", "show", "@5", check=3)
    assert beyond.error["message"] == "no thread @5: there are 4"
    for text in ("@0", "@x", "@-1", "@²"):
        assert "@2" in uwf("thread", "show", text, check=2).error["hint"]
    uwf("thread", "show", thread[-3:], check=3)


def test_an_id_that_begins_like_one_thread_and_ends_like_another_is_ambiguous(
    uwf: Uwf, thread: str, instance: Instance
) -> None:
    begin = thread[:8]
    other = f"01ARZ3NDEKTSV4RRFF{begin}"
    head = instance.threads.head(instance.threads.find(thread))
    instance.store.repository.create_ref(f"refs/uwf/threads/{other}", head.commit)
    message = uwf("thread", "show", begin, check=2).error["message"]
    assert thread in message and other in message
    assert uwf("thread", "show", thread[:9]).json["thread"] == thread
    assert uwf("thread", "show", other[-9:]).json["thread"] == other


def test_several_threads_are_killed_and_the_failure_of_one_stops_no_other(uwf: Uwf, thread: str) -> None:
    ids = [uwf("thread", "start", "pair.yaml", "-p", f"task {number}").json["thread"] for number in range(4)]
    done = uwf("thread", "kill", ids[0], thread, "zzzz", "@3", ids[0][-9:], check=3)
    assert [each["thread"] for each in done.json] == [ids[0], ids[1]]
    told = done.err.splitlines()
    assert len(told) == 2
    assert any(thread in line for line in told) and any("zzzz" in line for line in told)
    one = uwf("thread", "kill", "@", "--format", "text")
    assert one.out.startswith(f"killed {ids[3]}")
    assert uwf("thread", "kill", check=2).error["hint"].startswith("give ids")
    assert "exclude" in uwf("thread", "kill", "@", "--all", "--yes", check=2).error["message"]
    refused = uwf("thread", "pause", "--unretried", check=2).error
    assert refused["message"] == "no thread was named", "it leaves out no active thread"


@pytest.mark.parametrize("name", ["search", "author", "workflow"])
def test_an_empty_filter_selects_nothing_rather_than_all(uwf: Uwf, thread: str, name: str) -> None:
    thread = uwf("thread", "start", "pair.yaml", "-p", "x").json["thread"]
    assert f"--{name} is empty" in uwf("thread", "kill", f"--{name}", "", "--yes", check=2).error["message"]
    assert not uwf("thread", "show", thread).json["done"]


def test_filters_say_what_they_would_take_and_take_it_with_yes(uwf: Uwf, thread: str) -> None:
    waiting = uwf("thread", "start", "pair.yaml", "-p", "Quote the Commas").json["thread"]
    uwf("thread", "step", waiting, "--agent", scripted(ASKS))
    idle = uwf("thread", "start", "pair.yaml", "-p", "x\n\nbut in CSV").json["thread"]

    def listed(*arguments: str) -> list[str]:
        return [each["thread"] for each in uwf("thread", "list", *arguments).json]

    assert listed("--status", "waiting", "--status", "completed") == [waiting, thread]
    assert (
        listed("--status", "waiting,completed")
        == listed("--status", "completed, waiting")
        == [waiting, thread]
    )
    assert listed("--ended") == [thread]
    wrong = uwf("thread", "list", "--ended", "--status", "idle", check=2).error
    assert wrong["message"] == "--ended and --status exclude each other"
    assert "'odd'" in uwf("thread", "list", "--status", "idle,odd", check=2).error["message"]
    assert listed("--search", "commas") == [waiting]
    assert listed("--search", "csv") == [idle]
    assert listed("--author", "ADA@example") == [idle, waiting]
    assert listed("--author", "bob") == listed("--since", "2999-01-01") == []
    assert (
        listed("--since", "1d", "--all")
        == listed("--until", "2999-01-01", "--all")
        == [idle, waiting, thread]
    )
    assert listed("--until", "2000-01-01", "--all") == listed("--older-than", "90d", "--ended") == []
    assert listed("--since", "1d", "--until", "2999-01-01", "--ended") == [thread]
    assert "--since" in uwf("thread", "list", "--since", "soon", check=2).error["message"]
    assert "--older-than" in uwf("thread", "rm", "--older-than", "soon", check=2).error["message"]

    refused = uwf("thread", "kill", "--all", check=2)
    assert refused.error["message"] == f"2 threads would be killed: {idle}, {waiting}"
    text = uwf("thread", "kill", "--search", "commas", "--format", "text", check=2)
    assert text.out.split()[0] == waiting and "Quote the Commas" in text.out
    assert text.err == "uwf: 1 thread would be killed — repeat with --yes\n"
    assert listed() == [idle, waiting]
    assert uwf("thread", "kill", "--status", "failed").json == []
    killed = uwf("thread", "kill", "--all", "--yes").json
    assert [each["thread"] for each in killed] == [idle, waiting]
    assert listed() == []


def test_a_terminal_of_80_columns_shows_what_identifies_a_thread_whole(uwf: Uwf, thread: str) -> None:
    prompt = "The CSV export does not quote commas, and nobody noticed before it went out to customers"
    other = uwf("thread", "start", "pair.yaml", "-p", f"{prompt}\n\nMore of it.").json["thread"]
    status, shown = on_terminal("thread", "list", "--all", env={"NO_COLOR": "1"}, columns=80)
    header, *lines = shown.splitlines()
    assert (status, len(lines)) == (0, 2)
    assert header.split() == ["thread", "status", "updated", "last", "step", "cost", "task"]
    assert all(len(line) <= 80 for line in lines)
    for line, whole in zip(lines, (other, thread), strict=True):
        newest, short = line.split()[:2]
        assert len(short) == 6
        for name in newest, short:
            assert uwf("thread", "show", name).json["thread"] == whole
    assert "–" in lines[0] and lines[0].rstrip().endswith("…")
    assert prompt[:20] in lines[0] and "More" not in shown
    assert lines[1].split()[2] == "completed"
    assert lines[1].split()[-4:] == ["4", "critic", "rehearsed", "Task"]
    wide = on_terminal("thread", "list", "--all", "-l", env={"NO_COLOR": "1"}, columns=80)[1]
    assert {other, thread, "pair", "uwf-rehearse"} <= set(wide.split())
    assert "…" not in on_terminal("thread", "list", "-l", columns=300)[1]
    uwf("thread", "kill", other)
    third = uwf("thread", "start", "pair.yaml", "-p", "x").json["thread"]
    fourth = uwf("thread", "start", "pair.yaml", "-p", "x").json["thread"]
    uwf("thread", "kill", third)
    [line] = on_terminal("thread", "list", columns=80)[1].splitlines()[1:]
    assert line.split()[0] == "@" and fourth.endswith(line.split()[1])


def test_long_names_are_cut_so_that_a_thread_a_step_and_a_question_have_one_line(uwf: Uwf) -> None:
    role = "requirements-gathering-analyst"
    for name in ("quarterly-report-generation-and-review", "pair"):
        uwf("workflow", "put", write(f"{name}.yaml", PAIR.replace("writer", role).replace("pair", name)))
        for number in range(12):
            thread = uwf("thread", "start", name, "-p", f"{number} " + "long " * 20).json["thread"]
            uwf("thread", "step", thread, "--agent", scripted(ASKS.replace("writer", role)))
    size = {"env": {"NO_COLOR": "1"}, "columns": 80, "lines": 24}
    for command in (("thread", "list"), ("thread", "steps", thread), ("inbox",)):
        lines = on_terminal(*command, **size)[1].splitlines()  # type: ignore[arg-type]
        rows = [line for line in lines if role[:4] in line]
        assert len(rows) == (1 if "steps" in command else 20) and len(lines) <= 23
        assert all(len(row) <= 80 and row.endswith("…") for row in rows), lines


def test_a_list_keeps_its_head_on_a_terminal_and_a_wide_one_has_a_line_of_each_thread(
    uwf: Uwf, thread: str
) -> None:
    uwf("thread", "start", "pair.yaml", "--each", write("tasks.jsonl", '"x"\n' * 30))
    size = {"env": {"NO_COLOR": "1"}, "columns": 80, "lines": 24}
    *shown, note = on_terminal("thread", "list", **size)[1].splitlines()  # type: ignore[arg-type]
    assert shown[0].split()[0] == "thread" and len(shown) < 23
    left = 31 - len(shown)
    assert note == f"uwf: {left} more; --limit 30 lists all"
    every = on_terminal("thread", "list", "--limit", "30", **size)[1].splitlines()  # type: ignore[arg-type]
    assert len(every) == 31
    assert len(uwf("thread", "list", "--format", "text").out.splitlines()) == 31
    size |= {"columns": 140}
    *_, done = on_terminal("thread", "list", "--status", "completed", **size)[1].splitlines()  # type: ignore[arg-type]
    assert done.split()[-2:] == ["Task", "approved"]


def test_a_list_is_sorted_by_what_counts_and_a_cost_that_nobody_told_is_not_nothing(
    uwf: Uwf, instance: Instance, config: Callable[[str], Path]
) -> None:
    price = "models: {m: {provider: p, name: model-1, price: {input: 2, output: 10}}}\n"
    config(f"providers: {{p: {{baseUrl: http://localhost/v1}}}}\n{price}")
    silent, cheap, dear = start(instance), start(instance), start(instance)
    step(instance, silent)
    step(instance, cheap, [assistant(100, 10, "model-1")])
    step(instance, dear, [assistant(100, 10, "model-1")])
    attempt(instance, dear, [assistant(500_000, 0, "model-1")])
    step(instance, cheap, [assistant(100, 10, "model-1")])

    def listed(*arguments: str) -> list[tuple[str, float | None]]:
        return [(each["thread"], each["cost"]) for each in uwf("thread", "list", *arguments).json]

    assert listed("--sort", "cost") == [(dear, 1.0003), (cheap, 0.0006), (silent, None)]
    assert listed("--view", "expensive") == [(dear, 1.0003)]
    assert listed("--min-cost", "0.0005") == [(dear, 1.0003), (cheap, 0.0006)]
    for wrong in ("dear", "-1", "nan"):
        error = uwf("thread", "list", "--min-cost", wrong, check=2).error
        assert error["message"] == f"--min-cost '{wrong}' is no number of US dollars"
    assert listed("--sort", "cost", "--limit", "1", "--offset", "1") == [(cheap, 0.0006)]
    assert listed("--sort", "steps")[0][0] == cheap
    assert [each for each, _ in listed()] == [dear, cheap, silent]
    text = uwf("thread", "list", "--format", "text").out
    assert "$1.00 " in text and "$0.0006 " in text and "– " in text and "$0.00 " not in text
    doubled = price.replace("input: 2", "input: 4").replace("output: 10", "output: 20")
    config(f"providers: {{p: {{baseUrl: http://localhost/v1}}}}\n{doubled}")
    assert listed("--sort", "cost") == [(dear, 2.0006), (cheap, 0.0012), (silent, None)]


def test_grep_finds_what_was_asked_answered_and_put_out_once_in_all_threads(
    uwf: Uwf, instance: Instance
) -> None:
    pair = write("pair.yaml", PAIR)
    asked = uwf("thread", "start", pair, "-p", "# Commas\n\nQuote the ümlaut comma, please").json["thread"]
    said = "---\\ntext: done\\n---\\n\\nI quoted every comma.\\n"
    script = f'- {{ role: writer, answer: "{said}" }}\n- {{ role: critic, output: {{ approved: true }} }}\n'
    uwf("thread", "run", asked, "--agent", scripted(script))
    forks = [uwf("thread", "fork", asked, "--at", "1").json["thread"] for _ in range(3)]
    piped = uwf("thread", "start", pair, "-p", "x").json["thread"]
    uwf("thread", "step", piped, "--agent", scripted("- { role: writer, output: { text: 'a pi|pe' } }"))
    uwf("thread", "kill", forks[0])
    for fold in ((), ("gc", "--fold-before", "2999-01-01")):
        if fold:
            uwf(*fold)
        found = uwf("grep", "-i", "COMMA").json
        assert [(each["thread"], each["number"], each["where"]) for each in found] == [
            (asked, 0, "prompt"),
            (asked, 0, "prompt"),
            (asked, 1, "answer"),
        ]
        assert found[1]["text"] == "Quote the ümlaut comma, please"
        assert found[1]["text"][found[1]["column"] - 1 :].startswith("comma")
        assert found[2]["step"] == uwf("thread", "steps", asked).json[0]["step"]
        assert found[2]["role"] == "writer"
    [output] = uwf("grep", "-F", "pi|p").json  # which a table of its page can't show as it is
    assert (output["thread"], output["where"], output["text"]) == (piped, "output", "text: a pi|pe")
    assert [each["role"] for each in uwf("grep", "-E", "comma|appro+ved", "--role", "critic").json] == [
        "critic"
    ]
    assert uwf("grep", "comma", "--status", "idle").json[0]["thread"] == forks[1]
    for pattern in ("payload", "timestamp", "nobody said that", "a.*[0]"):
        nothing = uwf("grep", pattern, check=1)
        assert (nothing.json, nothing.err) == ([], "")
    assert uwf("grep", "-F", "a.*[0]", "--format", "text", check=1).out == ""


def test_a_match_is_shown_with_the_lines_around_it(uwf: Uwf) -> None:
    prompt = "The first\n\nA needle here\nand another needle\n" + "x" * 1000
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", prompt).json["thread"]
    uwf("thread", "step", thread, "--agent", scripted("- { role: writer, output: { text: 'a pi|pe' } }"))
    one, other = uwf("grep", "needle", "-C", "2").json
    assert one["before"] == ["The first", ""] and one["after"] == ["and another needle", "x" * 499 + "…"]
    assert other["before"] == ["", "A needle here"]
    (output,) = uwf("grep", "-F", "pi|pe", "--context", "9").json
    assert (output["before"], output["text"], output["after"]) == ([], "text: a pi|pe", [])
    assert "before" not in uwf("grep", "needle").json[0]
    _, shown = on_terminal("grep", "A needle", "-C1", env={"NO_COLOR": "1"}, columns=80)
    number = one["line"]
    assert [line.split("prompt", 1)[1].strip() for line in shown.splitlines()] == [
        f"{number - 1}-",
        f"{number}: A needle here",
        f"{number + 1}- and another needle",
    ]


def test_a_match_in_an_output_is_a_line_of_its_own_text(uwf: Uwf) -> None:
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x").json["thread"]
    text = 'It is a_snake & <b>bold</b>, \\u202eevil\\n\\nno \\"snake\\" below'
    uwf("thread", "step", thread, "--agent", scripted(f'- {{ role: writer, output: {{ text: "{text}" }} }}'))
    one, other = uwf("grep", "-i", "SNAKE", "-C", "1").json
    assert (one["where"], one["line"], one["column"]) == ("output", 1, 15)
    assert one["text"] == "text: It is a_snake & <b>bold</b>, \u202eevil"
    assert (other["before"], other["line"], other["text"]) == ([""], 3, 'no "snake" below')
    assert uwf("grep", "-F", "<b>bold").json[0]["text"] == one["text"]


def test_a_pattern_that_is_none_is_told_on_one_line(uwf: Uwf, thread: str) -> None:
    for arguments in (("a\\(",), ("-P", "(?<"), ("-E", "("), ("-x",), ("",), ("-F", "-E", "a"), ("a\nb",)):
        refused = uwf("grep", *arguments, check=2)
        assert len(refused.err.splitlines()) == 1 and refused.error["hint"]
    assert uwf("grep", "--", "-x", check=1).json == []
    uwf("thread", "start", "pair.yaml", "-p", "run it with --force")
    assert uwf("grep", "--", "--force").json[0]["text"] == "run it with --force"


def test_a_terminal_shows_the_match_of_a_long_line_and_no_control_character(uwf: Uwf) -> None:
    prompt = f"{'before ' * 40}\x1b[31mneedle {'after ' * 40}"
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", prompt).json["thread"]
    status, shown = on_terminal("grep", "needle", env={"NO_COLOR": "1"}, columns=80)
    [line] = shown.splitlines()
    assert status == 0 and len(line) <= 80
    assert line.startswith(f"{thread[-6:]}   0 prompt") and "needle" in line and "\x1b" not in line


def test_marks_by_the_thousands_reach_no_terminal_and_take_no_time(uwf: Uwf) -> None:
    mark = "\u0301"
    write("marks.txt", f"e{mark * 2}needle {mark * 60_000}{'y' * 200}")
    uwf("thread", "start", write("pair.yaml", PAIR), "--prompt-file", "marks.txt")
    status, shown = on_terminal("grep", "needle", env={"NO_COLOR": "1"}, columns=80)
    [line] = shown.splitlines()
    assert status == 0 and f"e{mark * 2}needle" in line and line.count(mark) < 1000
