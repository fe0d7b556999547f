"""What the extension of an installed package adds to the command."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import EXAMPLES, Uwf
from suite_bench import Bench
from uwf_cli.invocation import Invocation
from uwf_cli.resolve import check_file

import uwf_git
from uwf_git import ext
from uwf_git.base import extensions
from uwf_git.base.errors import Invalid

MANIFEST = """\
from uwf_git.base.extensions import Command, Dispatcher, Export, Extension, Pages

EXTENSION = Extension(
    "tides",
    commands=(Command("workflow float", "uwf_tides.work:float_", "Say that a workflow floats."),),
    pages=Pages("Tides", "refs/uwf/threads/", {"/tides": "uwf_tides.work:page"}),
    exports=(Export("--tides", "uwf_tides.work:export", "The file for what the sea says."),),
    dispatchers=(Dispatcher("--by-sea", "uwf_tides.work:dispatch", "Have the sea step all threads."),),
    resumed="uwf_tides.work:resumed",
    collected="uwf_tides.work:collected",
)
"""
WORK = '''\
from uwf_cli.command import command
from uwf_cli.page.addresses import Page

from uwf_git.api.run import Options, run


@command("uwf workflow float")
def float_(invocation):
    """Say that a workflow floats."""
    invocation.emit({"floats": True})


def export(invocation, thread, file, force):
    file.write_text(f"{thread} {'again' if force else 'once'}")
    invocation.emit({"wet": True})


def resumed(instance, threads):
    instance.warn(f"the sea hears of {', '.join(threads)}")


def collected(instance):
    instance.warn("the sea is clean")


def dispatch(instance, terms, warn):
    def step(threads):
        warn(f"the sea takes {len(threads)}, {terms.at_once} at once")
        for thread in threads:
            list(run(instance, thread, lambda: Options(terms.agent)))

    return step


def page(instance, asked):
    return Page("tides.html", "Tides", {"sea": "<deep>"})
'''
TEMPLATE = """\
{% extends "base.html" %}
{% block content %}The sea is {{ sea }}{% endblock %}
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs a package with the extension `tides`."""
    site = tmp_path / "site"
    info = site / "uwf_tides-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "uwf_tides").mkdir()
    (site / "uwf_tides" / "__init__.py").write_text(MANIFEST)
    (site / "uwf_tides" / "work.py").write_text(WORK)
    (site / "uwf_tides" / "templates").mkdir()
    (site / "uwf_tides" / "templates" / "tides.html").write_text(TEMPLATE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: uwf-tides\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[uwf.extensions]\ntides = uwf_tides:EXTENSION\n")
    monkeypatch.setenv("PYTHONPATH", str(site))


def test_an_extension_adds_a_command_to_a_group_of_the_core(uwf: Uwf) -> None:
    assert uwf("workflow", "float").json == {"floats": True}
    assert "Say that a workflow floats." in uwf("workflow", "--help").out


def test_an_extension_adds_a_form_that_threads_are_exported_in(uwf: Uwf, tmp_path: Path) -> None:
    sea = tmp_path / "sea"
    assert uwf("export", "ABC", "--tides", sea).json == {"wet": True} and sea.read_text() == "ABC once"
    uwf("export", "ABC", "--tides", sea, "--force")
    assert sea.read_text() == "ABC again"
    assert "The file for what the sea says." in uwf("export", "--help").out
    refused = uwf("export", "--tides", sea, check=2)
    assert "uwf export ID --tides FILE" in refused.err


def test_an_extension_is_told_of_threads_that_can_go_on_and_of_gc(uwf: Uwf, thread: str) -> None:
    uwf("thread", "pause", thread)
    assert f"the sea hears of {thread}" in uwf("thread", "resume", thread).err
    assert f"the sea hears of {thread}" in uwf("thread", "say", thread, "-m", "Hm.").err
    assert "the sea is clean" in uwf("gc").err


def test_an_extension_adds_a_way_to_step_the_threads_of_a_suite(bench: Bench) -> None:
    bench.imports([{"name": name, "prompt": f"say {name}"} for name in "ab"])
    done = bench.run("--by-sea", "-j", "2")
    assert "the sea takes 2, 2 at once" in done.err
    assert [each["status"] for each in done.json["results"]] == ["completed", "completed"]
    assert bench.calls == 4  # nothing is stepped again
    refused = bench.run("--by-sea", "--fleet", check=2)
    assert refused.error["message"] == "--fleet and --by-sea exclude each other"


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes `shells` the first of our extensions: it adds the `fields`, and its module holds the `objects`."""

    def add(objects: Mapping[str, object], **fields: Any) -> None:
        module = ModuleType("uwf_git.ext.shells")
        vars(module).update(objects, EXTENSION=extensions.Extension("shells", **fields))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(ext, "OURS", ("shells", *ext.OURS))
        extensions.ours.cache_clear()
        extensions._our.cache_clear()

    yield add
    extensions.ours.cache_clear()
    extensions._our.cache_clear()


def test_an_extension_is_told_of_threads_that_a_program_lets_go_on(
    register: Callable[..., None], thread: str
) -> None:
    heard: list[str] = []
    register(
        {"RESUMED": lambda _instance, threads: heard.extend(threads)}, resumed="uwf_git.ext.shells:RESUMED"
    )
    opened = uwf_git.open().thread(thread)
    opened.pause()
    assert heard == []
    opened.resume()
    opened.say("Hm.")
    assert heard == [thread, thread]


def test_an_extension_compiles_the_code_of_a_language(register: Callable[..., None]) -> None:
    class Shells:
        def compile_file(self, path: Path, *_: object) -> None:
            raise Invalid(f"{path} is under water")

    register({"COMPILER": Shells()}, compilers={"python": "uwf_git.ext.shells:COMPILER"})
    with pytest.raises(Invalid, match=r"reef\.py is under water"):
        check_file(Invocation(), Path("reef.py"))


def test_an_extension_adds_pages_and_the_navigation_leads_to_them(uwf: Uwf, tmp_path: Path) -> None:
    uwf("thread", "start", EXAMPLES / "solve-issue.yaml", "-p", "Swim")
    uwf("web", "--export", tmp_path / "pages")
    assert "The sea is &lt;deep&gt;" in (tmp_path / "pages" / "tides.html").read_text()
    index = (tmp_path / "pages" / "index.html").read_text()
    [label] = re.findall(r'<a href="tides\.html">.*?<span class="label">(.*?)</span>', index)
    assert label == "Tides"
