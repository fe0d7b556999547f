"""`uwf crew menu`, `route` and `do`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.ext.crews.commands.completers import complete_persona
from uwf_git.ext.crews.menu import CHAT, CLARIFY, EXACT, RESUME, SHOW_MENU, Routing, shown
from uwf_git.plugin import (
    Invocation,
    NotFound,
    Usage,
    UwfError,
    as_json,
    begin_thread,
    command,
    nearest,
    one_line,
    options,
    require_agent,
    resolve,
    run_one,
    step_exchanged,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.ext.crews.entry import Entry, Run, Turn
    from uwf_git.plugin import ThreadId

_WORD = re.compile(r"[\d_.:/*+a-zA-Z\u00c0-\u024f-]+")
"""A word of a script that has spaces between words."""

_WHO = click.argument("who", metavar="CREW[/PERSONA]", shell_complete=complete_persona)


@command(
    "uwf crew menu trip",
    "uwf crew menu trip/tom",
)
@_WHO
def menu(invocation: Invocation, who: str) -> None:
    """Show a persona's menu. Default: the crew's first persona."""
    invocation.emit(menu_value(_entry(invocation, who, None)), menu_text)


@command(
    'uwf crew route trip "plan the trip"',
    "uwf crew route trip/tom 3",
)
@_WHO
@click.argument("text")
def route(invocation: Invocation, who: str, text: str) -> None:
    """Print as JSON which action an input selects, without running it.

    Deterministic: the same menu and text always give the same result. `problem` says why the action cannot
    run here.
    """
    entry = _entry(invocation, who, None)
    routed = entry.route(_given(text))
    value = routed.value()
    try:
        done = entry.resolve(routed)
        value |= _suggest(entry, done)
    except UwfError as error:
        value["problem"] = {"code": error.code, "message": error.message, "hint": error.hint}
    invocation.emit_document(as_json(value), value)


@command(
    'uwf crew do trip "plan trip" -p "Three days in Rome"',
    "uwf crew do trip/tom 2",
    'uwf crew do trip "plan trip" --no-run',
    'uwf crew do trip "What do you think of Rome?" --agent claude-code',
    "uwf crew do trip Ciao --talk",
)
@_WHO
@click.argument("text")
@click.option("-p", "--prompt", metavar="TEXT", help="The prompt of the workflow. - reads standard input.")
@options.PROMPT_FILE
@click.option("--talk", is_flag=True, help="Send TEXT to the persona, even if it matches the menu.")
@click.option("--no-run", is_flag=True, help="Start the thread without running it.")
@options.budget(options.PAUSES)
@options.MAX_STEPS
@options.AGENT
@options.CWD
@options.REMOTE
@options.QUIET
def do(
    invocation: Invocation,
    who: str,
    text: str,
    prompt: str | None,
    prompt_file: str | None,
    talk: bool,
    no_run: bool,
    max_steps: int,
    agent: str | None,
    cwd: Path | None,
    remote: str | None,
    quiet: bool,
    budget: dict[str, float],
) -> None:
    """Send input to a persona and run the matching action.

    A workflow is started as by uwf run; without -p the menu has its prompt. A single turn of the persona
    becomes a conversation that uwf chat --resume continues. A single word that is not in the menu is refused
    without --talk, since it may be a typo.
    """
    where = options.folder(cwd)
    if agent is not None:
        require_agent(invocation, agent)
    has_prompt = prompt is not None or prompt_file is not None
    task = resolve.read_prompt(prompt, prompt_file) if has_prompt else ""
    entry = _entry(invocation, who, where)
    routed = _said(text) if talk else entry.route(_given(text)).to_act_on
    if not talk:
        _refuse_unknown_word(entry, routed)
    done = entry.resolve(routed, task)
    from uwf_git.ext.crews.entry import Run, Turn

    if isinstance(done, Run):
        thread = _start(invocation, entry, routed, done, where, budget, not no_run)
    elif isinstance(done, Turn):
        _talk(invocation, entry, routed, done, agent, where)
        return
    elif routed.kind == RESUME:
        thread = _resume(invocation, entry, routed)
    else:
        _answer(invocation, entry, routed)
        return
    if not no_run:
        from uwf_git.plugin import RunOptions, require_ready_thread

        shared, thread = step_exchanged(invocation, thread, remote)
        require_ready_thread(invocation.instance, thread, agent)
        run_one(invocation, thread, RunOptions(agent, where, exchange=shared), max_steps, quiet)


def _said(text: str) -> Routing:
    if not (message := _given(text).strip()):
        raise Usage("--talk says nothing to the persona: the text is empty", "say something")
    return Routing(CHAT, EXACT, "--talk", message)


def _refuse_unknown_word(entry: Entry, routed: Routing) -> None:
    word = routed.said
    if routed.kind != CHAT or not _WORD.fullmatch(word):
        return
    names = [
        name
        for choice in shown(entry.member, entry.crew.workflows)
        for item in (entry.member.menu[choice.place],)
        for name in (item.trigger, item.cmd, *item.aliases)
        if name
    ]
    meant = nearest(word, names) or f"see: uwf crew menu {entry.crew.name}/{entry.member.persona.id}"
    raise NotFound(
        f"persona {entry.member.persona.id!r} of crew {entry.crew.name!r} has no item {one_line(word, 80)!r}",
        f"{meant}; to say it to {entry.member.persona.name}: --talk",
    )


def menu_value(entry: Entry) -> dict[str, Any]:
    """Return a persona's menu as JSON, with numbers."""
    persona = entry.member.persona
    items = []
    for choice in shown(entry.member, entry.crew.workflows):
        item = entry.member.menu[choice.place]
        called = {"trigger": item.trigger, "cmd": item.cmd, "aliases": list(item.aliases)}
        handlers = [{"match": handler.match, **_filled(handler.does._asdict())} for handler in item.handlers]
        items.append(
            {**choice.value(), "description": item.description, **_filled({**called, "handlers": handlers})}
        )
    return {
        "crew": entry.crew.name,
        "hash": entry.version.hash,
        "persona": {"id": persona.id, **_filled({"name": persona.name, "title": persona.title})},
        "icon": persona.icon,
        "personas": [member.persona.id for member in entry.crew.members],
        "menu": items,
    }


def menu_text(value: Any) -> str:
    persona = value["persona"]
    head = terminal.style(f"{value['icon']} {persona['name']}".strip(), "bold")
    lines = [head + (f", {persona['title']}" if "title" in persona else "")]
    rows = [
        (
            str(item["number"]),
            terminal.style(item.get("trigger") or item.get("cmd", ""), "bold"),
            item["description"] or item["label"],
        )
        for item in value["menu"]
    ]
    lines.append(terminal.table(rows).rstrip("\n") if rows else "has no menu; say something")
    others = [id_ for id_ in value["personas"] if id_ != persona["id"]]
    if others:
        also = ", ".join(f"{value['crew']}/{id_}" for id_ in others)
        lines.append(terminal.style(f"also: {also}", "dim"))
    return "\n".join(lines)


def candidates_text(value: Any) -> str:
    """Format a ClarifyChoice for a choice now, by numbers."""
    return terminal.table([(str(n), choice["label"]) for n, choice in enumerate(value["candidates"], 1)])


def _unclear_text(value: Any) -> str:
    rows = [
        ("" if "handler" in choice else str(choice["number"]), choice["label"])
        for choice in value["candidates"]
    ]
    return terminal.table(rows)


def _entry(invocation: Invocation, who: str, where: Path | None) -> Entry:
    from uwf_git.ext.crews.entry import Entry

    return Entry(invocation.instance, who, where or Path.cwd())


def _given(text: str) -> str:
    return resolve.read_stdin("input") if text == resolve.STDIN else text


def _filled(value: dict[str, Any]) -> dict[str, Any]:
    return {key: field for key, field in value.items() if field}


def _suggest(entry: Entry, done: Any) -> dict[str, Any]:
    from uwf_git.ext.crews.entry import Run, Turn

    if isinstance(done, Run):
        data = {key: done.data[key] for key in ("path", "format", "size")} if done.data else None
        return {
            "workflow": f"{entry.crew.name}/{done.workflow.id}",
            "persona": done.persona,
            "prompt": done.prompt,
            "data": data,
        }
    if isinstance(done, Turn):
        return {
            "persona": done.persona,
            "message": "\n\n".join(filter(None, (done.before, done.message))),
            "readsOnly": done.reads_only,
        }
    return {}


def _routed(routed: Routing) -> dict[str, Any]:
    value = routed.value()
    return {key: value[key] for key in ("kind", "confidence", "reason", "matchedMenuItemIndex")}


def _start(
    invocation: Invocation,
    entry: Entry,
    routed: Routing,
    run: Run,
    where: Path | None,
    budget: dict[str, float],
    to_run: bool,
) -> ThreadId:
    from uwf_git.plugin import ThreadStart

    address = f"{entry.crew.name}/{run.workflow.id}"
    what = ThreadStart(run.prompt, budget, where, data=run.data)
    begun = begin_thread(invocation, address, what, persona=run.persona, to_run=to_run)
    invocation.emit(
        {**_routed(routed), "persona": run.persona, "workflow": begun.workflow, "thread": begun.thread},
        lambda value: terminal.fields(
            [
                ("thread", terminal.style(value["thread"], "bold")),
                ("workflow", f"{begun.name}  {value['workflow']}"),
                *([] if to_run else [("next", f"uwf thread run {value['thread']}")]),
            ]
        ),
        compact=to_run,
    )
    return begun.thread


def _talk(
    invocation: Invocation, entry: Entry, routed: Routing, turn: Turn, agent: str | None, where: Path | None
) -> None:
    from uwf_git.ext.crews.commands.conversation_agent import talker
    from uwf_git.ext.crews.conversation_start import begin_conversation_with
    from uwf_git.plugin import say_to, step_thread

    instance = invocation.instance
    speaks = agent if agent is not None else talker(instance, entry)
    persona = entry.member.persona
    thread = begin_conversation_with(instance, entry.crews, entry.version, entry.crew, persona)
    if where is not None:
        instance.folders.remember(thread, where)
    if turn.before:
        say_to(instance, thread, turn.before)
    say_to(instance, thread, turn.message, chosen=not turn.reads_only)
    invocation.going_on = f"uwf chat --resume {thread} goes on"
    outcome = step_thread(instance, thread, speaks, where)
    reply = outcome.position.history.steps[-1]
    fields = {
        "thread": thread,
        "head": outcome.head,
        "agent": reply.agent,
        "text": instance.threads.answer(reply),
    }
    invocation.emit(
        {**_routed(routed), "persona": turn.persona, "workflow": outcome.workflow, **fields},
        lambda value: value["text"].rstrip(),
    )
    invocation.note(f"uwf chat --resume {thread} goes on")
    invocation.afterwards()


def _resume(invocation: Invocation, entry: Entry, routed: Routing) -> ThreadId:
    from uwf_git.plugin import Head, resume_thread

    instance = invocation.instance
    addresses = {f"{entry.crew.name}/{workflow.id}" for workflow in entry.crew.workflows}
    for head in instance.threads.meant():
        if isinstance(head, Head) and head.row.name in addresses:
            lifted = instance.threads.is_paused(head.thread) and resume_thread(instance, head.thread)
            value = {"workflow": head.row.workflow, "thread": head.thread, "resumed": lifted}
            invocation.emit(
                {**_routed(routed), **value},
                lambda value: terminal.fields([("thread", terminal.style(value["thread"], "bold"))]),
                compact=True,
            )
            return head.thread
    raise NotFound(
        f"crew {entry.crew.name!r} has no run to continue", f"see: uwf crew menu {entry.crew.name}"
    )


def _answer(invocation: Invocation, entry: Entry, routed: Routing) -> None:
    value = routed.value()
    if routed.kind == SHOW_MENU:
        value |= {"menu": menu_value(entry)}
        invocation.emit(value, lambda value: menu_text(value["menu"]))
        return
    if routed.kind == CLARIFY:
        invocation.emit(value, _unclear_text)
        raise Usage(
            f"{routed.said!r} is not clear: {routed.reason}", "say more of it, or the number of an item"
        )
    invocation.emit(
        value, lambda _: f"{entry.member.persona.name} has nothing to leave: nobody is in session"
    )
