"""Templates: all values are escaped, control and direction characters written out; only results of
`uwf_cli.page.markup` are HTML. Server and export use the same templates with different `link` functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from uwf_git.ext.web import output
from uwf_git.plugin import (
    Page,
    ThreadState,
    as_json,
    author_name,
    branches_text,
    counted,
    extensions,
    in_dollars,
    iso,
    markup,
    node_label,
    one_line,
    page_addresses,
    permission_lines,
    role_name,
    shortened,
    step_lines,
    terminal,
    thread_states,
    time_ago,
)

FOLDER = Path(__file__).parent
Link = Callable[[str], str]
RENDERED = 200_000
"""Characters of Markdown on a page: it may be written so as to take long."""


def html(page: Page, link: Link, site: Mapping[str, Any]) -> str:
    """Render a page. `site` has the `store`, whether pages may `write` and `run`, whether they are `live`,
    and the `version`."""
    template = _environment(bool(site["live"])).get_template(page.template)
    with markup.room_for_markdown(RENDERED):
        return template.render(
            page.values, title=page.title, link=link, site=site, to=page_addresses, page=page
        )


@cache
def _environment(live: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([FOLDER / "templates", *extensions.template_folders()]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "markdown": lambda text, breaks=False, below=3: Markup(markup.markdown(text, below, breaks)),
        "value": lambda content: Markup(markup.value(content)),
        "pre": lambda text: Markup(markup.pre(text)),
        "verbatim": lambda text: Markup(markup.verbatim(text)),
        "asking": thread_states.asking_text,
        "branches": branches_text,
        "bounded": lambda content, room=markup.LONGEST: Markup(markup.bounded(content, room)),
        "code": terminal.escape_code,
        "colour": thread_states.colour_of,
        "counted": counted,
        "dollars": in_dollars,
        "input_lines": _input_lines,
        "is_pausing": thread_states.is_pausing,
        "json": as_json,
        "lasted": step_lines.lasted,
        "line": one_line,
        "node": node_label,
        "output_view": output.view,
        "person": author_name,
        "role": role_name,
        "score": lambda average: "–" if average is None else f"{average['score']:.2f}",
        "short": shortened,
        "when": _when if live else _exactly,
    }
    environment.globals |= {
        "ABSENT": thread_states.ABSENT,
        "Group": thread_states.Group,
        "ThreadState": ThreadState,
    }
    return environment


def _input_lines(request: Mapping[str, Any]) -> str:
    lines = permission_lines({**request, "title": "", "command": None, "paths": []})
    return "\n".join(line.removeprefix("  ") for line in lines[1:])


def _shown(value: Any) -> Any:
    if value is None:
        return ""
    return terminal.escape(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _when(moment: float | str | None) -> Markup:
    """Return a time (Unix seconds or JSON) in words, with the exact time on hover and for scripts."""
    if (seconds := _seconds(moment)) is None:
        return Markup("")
    words = escape(time_ago(seconds))
    return Markup(f'<time datetime="{iso(seconds)}" title="{_exact(seconds)}">{words}</time>')


def _exactly(moment: float | str | None) -> Markup:
    if (seconds := _seconds(moment)) is None:
        return Markup("")
    return Markup('<time datetime="{}">{}</time>').format(iso(seconds), _exact(seconds))


def _seconds(moment: float | str | None) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else moment


def _exact(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
