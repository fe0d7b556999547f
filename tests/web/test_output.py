"""Outputs as they are: colours, lines, JSON, Markdown, the raw file and the box that scrolls through all lines."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lived_in import PLAN, LivedIn, say
from playwright.sync_api import Page, expect
from site_serving import Serve, keep_picture
from uwf_cli.page import ansi
from workflows import opened

from uwf_git.config.secrets import Redactor
from uwf_git.config.stream_redaction import ColouredText
from uwf_git.ext.web import output
from uwf_git.format.ids import ThreadId


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[32mok\x1b[0m <b>&", '<span class="f2">ok</span> &lt;b&gt;&amp;'),
        (
            "\x1b[1;4;91mx\x1b[22my",
            '<span class="bold underlined f9">x</span><span class="underlined f9">y</span>',
        ),
        ("\x1b[2;3mx\x1b[m.", '<span class="dim italic">x</span>.'),
        ("\x1b[38;5;196mr\x1b[48;5;21mb", '<span class="f9">r</span><span class="f9 b4">b</span>'),
        (
            "\x1b[38;2;0;0;250mb\x1b[38:2::255:0:0mr\x1b[39m.",
            '<span class="f4">b</span><span class="f9">r</span>.',
        ),
        ("\x1b[38;5mx\x1b[38;2;1mx\x1b[38mx\x1b[999mx", "xxxx"),
        ("\x1b[31mone\ntwo\x1b[0m", '<span class="f1">one</span>\n<span class="f1">two</span>'),
        ("\x9b31mr\x9b0m", '<span class="f1">r</span>'),
    ],
)
def test_colours_become_classes(printed: str, shown: str) -> None:
    assert ansi.styled(printed) == shown


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b]0;a title\x07x\x1b]2;another\x1b\\y", "xy"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Hx\x1b[10Cy\x1b[?1049hz\x1b[6n", "xyz"),
        ("\x1bPq#0;2;0\x1b\\x\x1b_apc\x1b\\y\x1b^pm\x1b\\z", "xyz"),
        ("x\x1b", "x"),
        ("x\x1b[38;5", "x"),
        ("x\x1b]never ended", "x"),
        ("bell\x07 null\x00 del\x7f", "bell null del"),
        ("a\u202eb", "a\\u202eb"),
        ("10 %\r50 %\r100 %", "100 %"),
        ("loading\rdone", "doneing"),
        ("loading\r\x1b[Kdone", "done"),
        ("line\r\nnext\r", "line\nnext"),
        ("bo\bold", "bold"),
        (f"\x1b[{'1;' * 1000}mx", "x"),  # longer than any program's, and kept by what remembers styles
    ],
)
def test_nothing_else_that_steers_a_terminal_passes(printed: str, shown: str) -> None:
    assert ansi.styled(printed) == shown


CLASSES = {
    *(f"{kind}{number}" for kind in "fb" for number in range(16)),
    "bold",
    "dim",
    "italic",
    "underlined",
    "cut",
}


class _Strict(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.depth, self.seen = 0, ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "span" and [name for name, _ in attrs] == ["class"]
        assert set((attrs[0][1] or "").split()) <= CLASSES
        self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        assert tag == "span" and self.depth
        self.depth -= 1

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment

    def handle_data(self, data: str) -> None:
        self.seen += data


_PIECES = st.sampled_from(
    (
        *(
            "\x1b",
            "\x1b[",
            "\x9b",
            "m",
            ";",
            ":",
            "38",
            "48",
            "5",
            "2",
            "31",
            "0",
            "\x1b]",
            "\x07",
            "\x1b\\",
            "\r",
        ),
        *(
            "\b",
            "K",
            "\n",
            "<",
            "&",
            '"',
            "<script>",
            "</span>",
            "<!--",
            "\u202e",
            "\x1b[1m",
            "\x1bP",
            "\ud800",
            "x",
        ),
    )
)
_TEXTS = st.one_of(
    st.text(), st.lists(_PIECES).map("".join), st.lists(st.one_of(_PIECES, st.text())).map("".join)
)


@given(_TEXTS)
def test_whatever_is_printed_becomes_spans_of_known_classes_and_visible_text(printed: str) -> None:
    for shown in (ansi.styled(printed), ansi.styled_lines(printed, ansi.PLAIN, 5)[0]):
        page = _Strict()
        page.feed(shown)
        page.close()
        assert page.depth == 0
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.seen)


@given(st.lists(_TEXTS.map(lambda text: text.replace("\n", ""))))
def test_lines_look_alike_whether_they_come_one_by_one_or_at_once(lines: list[str]) -> None:
    style, one_by_one = ansi.PLAIN, []
    for line in lines:
        shown, style = ansi.styled_line(line, style)
        one_by_one.append(shown)
    assert "\n".join(one_by_one) == (ansi.styled_lines("\n".join(lines))[0] if lines else "")
    shown, _ = ansi.styled_line("end", style)
    assert output.OutputText("\n".join([*lines, "end"])).shown(1, len(lines) + 1) == [*one_by_one, shown]


def test_of_a_very_long_line_the_beginning_is_shown() -> None:
    for line in ("x" * 30_000, "\x1b[31m" + "x" * 30_000, "\r" * 30_000 + "x" * 30_000):
        shown, _ = ansi.styled_line(line, most=ansi.LONGEST)
        assert "20,000 more characters" in shown and len(shown) < 11_000


SECRETS = Redactor({"THEIR_KEY": "s3cr3t-value-0815"})


@pytest.mark.parametrize(
    ("pieces", "passed"),
    [
        (["\x1b[32mok\x1b[0m\n"], "\x1b[32mok\x1b[0m\n"),
        (["\x1b[32mok s3cr3t-value-0815\x1b[0m\n"], "ok [redacted:THEIR_KEY]\n"),
        (["s3c\x1b[31mr3t-val\x1b[0mue-0815\n"], "[redacted:THEIR_KEY]\n"),
        (["\x1b[1mno s3cr3t-v", "\x1b[0malue\x1b[31m!\n"], "\x1b[1mno s3cr3t-v\x1b[0malue\x1b[31m!\n"),
        (["is s3cr3t\x1b[1m-v", "alue-0815 \x1b[31mred\n"], "is [redacted:THEIR_KEY] red\n"),
    ],
)
def test_secrets_are_found_behind_colours(pieces: list[str], passed: str) -> None:
    text = ColouredText(SECRETS)
    said = "".join(map(text.feed, pieces))
    assert "s3cr3t-value" not in re.sub(r"\x1b\[[0-9;]*m", "", said) or "0815" not in said
    assert said == passed


def test_json_folds_and_what_is_none_or_too_much_is_text() -> None:
    shown = output.view('{"a": {"b": ["<i>", 1, null]}, "long": "one\\ntwo"}').html
    assert shown.count("<details open>") == 2 and "&lt;i&gt;" in shown and "<i>" not in shown
    for text in ("{not json", "[" * 5000 + "]" * 5000, json.dumps(list(range(9000))), '{"a": 1e', "17", "[]"):
        assert "<details" not in output.view(text).html
    assert '<span class="line" id="L3">' in output.view("1\n2\n3").html
    assert "<h4>" in output.view("## Cause", kind="markdown").html
    assert 'class="f1"' in output.view("\x1b[31m## red\x1b[m", kind="markdown").html


def test_the_newest_lines_are_shown_with_the_way_to_those_before() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 5001)) + "\n"
    view = output.view(text, "/thread/01A/step/2", "answer")
    assert (view.first, view.last, view.total) == (4001, 5000, 5000)
    assert view.raw == "/thread/01A/step/2/raw/answer"
    long = output.view("\n".join(["x" * 5000] * 1000))
    assert long.last - long.first < 100


LINES = 20_000


@pytest.fixture
def printed(lived_in: LivedIn) -> str:
    """The address of a step that has many lines as its answer."""
    lines = (f"\x1b[3{number % 8}mline {number}\x1b[0m of <b>many</b>" for number in range(1, LINES + 1))
    thread = ThreadId(lived_in.idle)
    say(
        opened(),
        thread,
        PLAN._replace(role="reviewer", output={"approved": True, "comments": "x"}, text="\n".join(lines)),
    )
    return f"/thread/{thread}/step/3"


def test_lines_and_raw_files_are_served_by_their_step(printed: str, client: httpx.Client) -> None:
    raw = client.get(f"{printed}/raw/raw")
    assert raw.headers["content-type"] == "text/plain; charset=utf-8"
    assert raw.headers["x-content-type-options"] == "nosniff"
    assert re.fullmatch(r'attachment; filename="[A-Za-z0-9.-]+\.txt"', raw.headers["content-disposition"])
    assert raw.text.startswith("\x1b[31mline 1\x1b[0m of <b>many</b>\n")
    page = client.get(f"{printed}/lines/raw?from=7001&to=9500").json()
    assert (page["total"], page["first"], page["html"].count('class="line"')) == (LINES, 7001, 1000)
    assert '<span class="f1">line 7001</span> of &lt;b&gt;many&lt;/b&gt;\n' in page["html"]
    found = client.get(f"{printed}/lines/raw", params={"find": "LINE 1999"}).json()["found"]
    assert found == [1999, *range(19990, 20000)]
    for wrong in ("/lines/nothing", "/raw/turn-0", "/raw/turn-999", "/raw/..%2fx", "/output/nothing"):
        assert client.get(printed + wrong).status_code == 404
    assert client.get(f"{printed}/lines/raw?from=x&to=-1").json()["first"] == 1
    assert client.get(printed.replace("/step/3", "/step/99999999999999") + "/raw/raw").status_code == 404


def test_without_a_script_the_newest_lines_are_there_with_links_to_those_before(
    printed: str, client: httpx.Client
) -> None:
    newest = client.get(f"{printed}/output/raw").text
    assert f'id="L{LINES}"' in newest and f'id="L{LINES - 999}"' in newest and 'id="L1"' not in newest
    before = re.search(r'rel="prev" href="([^"]+)"', newest)
    assert before is not None
    older = client.get(before[1]).text
    assert f'id="L{LINES - 1000}"' in older and 'rel="next"' in older


@pytest.mark.extended
def test_of_any_number_of_lines_only_those_in_view_are_in_the_document(
    serve: Serve, browser_page: Page, printed: str
) -> None:
    serving = serve()
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}{printed}")
    browser_page.get_by_text("The answer as it came").click()
    expect(browser_page.locator("#raw-L2 .f2")).to_have_text("line 2")
    keep_picture(browser_page, "step-output")
    browser_page.locator("#raw-L2 [data-n]").click()
    expect(browser_page).to_have_url(re.compile("#raw-L2$"))
    browser_page.locator("#raw-L1").locator("xpath=ancestor::details[1]").get_by_role(
        "link", name="All lines"
    ).click()
    expect(browser_page).to_have_url(f"{serving.address}{printed}/output/raw")
    box = browser_page.get_by_role("region", name="Lines of the output")
    expect(box.locator(f"#L{LINES}")).to_be_in_viewport()
    box.evaluate("box => { box.scrollTop = box.scrollHeight / 2; }")
    middle = box.locator(f"#L{LINES // 2 + 10}")
    expect(middle).to_have_text(re.compile(f"line {LINES // 2 + 10} of <b>many</b>"))
    expect(middle).to_be_in_viewport()
    assert box.locator(".line").count() < 300
    browser_page.get_by_role("button", name="The first line").click()
    expect(box.locator("#L1 .f1")).to_be_in_viewport()
    browser_page.keyboard.press("/")
    field = browser_page.get_by_label("Find in the output")
    expect(field).to_be_focused()
    field.fill("line 1234")
    field.press("Enter")
    expect(box.locator("#L1234")).to_be_in_viewport()
    field.press("Enter")
    expect(box.locator("#L12340.found")).to_be_in_viewport()
    expect(browser_page.get_by_text("2 of 11")).to_be_visible()
    keep_picture(browser_page, "output")
    box.locator("#L12341 [data-n]").click()
    expect(browser_page).to_have_url(re.compile("#L12341$"))
    browser_page.reload()
    expect(box.locator("#L12341")).to_be_in_viewport()
