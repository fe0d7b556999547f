"""`uwf-llm`: a role is done by one completion of a language model, from the prompt alone.

The model is the one of `--model ALIAS`, else of `modelOverrides.agent`, else `defaultModel`. A correction
goes on in the same conversation, which this process remembers; a later process takes it up again from the
turns that the failed attempt left.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from uwf_git.errors import AgentFailed, Usage
from uwf_git.kit import Context, Reply, create_agent
from uwf_git.kit.extract import failed_with

USAGE = "uwf-llm [--model ALIAS] [--temperature NUMBER] [--max-tokens NUMBER]"
SCENARIO = "agent"

Message = dict[str, Any]
_conversations: dict[str, list[Message]] = {}
"""By session, which nobody shares: a session's name is random."""


class Options(NamedTuple):
    """The agent's arguments. `extra` are fields of the request."""

    model: str | None = None
    extra: tuple[tuple[str, int | float], ...] = ()


def parse_args(args: Sequence[str]) -> Options:
    """Raises Usage."""
    options = Options()
    rest = list(args)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in ("--model", "--temperature", "--max-tokens"):
            raise Usage(f"uwf-llm has no argument {name}", USAGE)
        if not equals:
            if not rest:
                raise Usage(f"uwf-llm: {name} needs a value", USAGE)
            value = rest.pop(0)
        if name == "--model":
            options = options._replace(model=value)
            continue
        try:
            number = float(value) if name == "--temperature" else int(value)
        except ValueError:
            raise Usage(f"uwf-llm: {name} {value!r} is no number", USAGE) from None
        field = name.removeprefix("--").replace("-", "_")
        options = options._replace(extra=(*options.extra, (field, number)))
    return options


def run(ctx: Context) -> Reply:
    """One completion of the prompt. Raises AgentFailed, Invalid where no model is configured."""
    return _say(ctx, secrets.token_hex(8), [{"role": "user", "content": ctx.prompt}])


def continue_(ctx: Context, session: str, message: str) -> Reply:
    """One more message in a conversation, taken up from the failed attempt's turns where this process
    didn't have it itself."""
    known = _conversations.get(session)
    if known is None:
        known = [{"role": "user", "content": ctx.prompt}]
        if ctx.resume is not None and ctx.resume.session == session:
            known += [
                {"role": turn.role, "content": turn.text}
                for turn in ctx.resume.turns
                if turn.role in ("user", "assistant")
            ]
    return _say(ctx, session, [*known, {"role": "user", "content": message}])


def _say(ctx: Context, session: str, messages: list[Message]) -> Reply:
    from uwf_git.chat import Chat, resolve_endpoint
    from uwf_git.redact import load_secrets

    options: Options = ctx.options
    root = ctx.config.path.parent
    endpoint = resolve_endpoint(ctx.config, _model(ctx, options), load_secrets(root, ctx.config, os.environ))
    with Chat(endpoint) as chat:
        done = chat.complete(messages, deadline=ctx.deadline, extra=dict(options.extra))
    reply = done.reply(session)
    _conversations[session] = [*messages, {"role": "assistant", "content": done.text}]
    if not done.text.strip():
        why = f" (finish_reason {done.finish})" if done.finish else ""
        hint = "raise --max-tokens" if done.finish == "length" else "try again, or another model"
        raise failed_with(reply, f"model {done.model} gave an empty answer{why}", hint)
    return reply


def _model(ctx: Context, options: Options) -> str:
    from uwf_git.config import resolve_model

    if options.model is not None:
        return options.model
    model = resolve_model(ctx.config, SCENARIO)
    if model is None:
        raise AgentFailed("uwf-llm has no model to ask", "set one up with: uwf setup")
    return model.alias


agent = create_agent("uwf-llm", run, continue_, parse_args, USAGE)
main = agent.main

if __name__ == "__main__":
    main()
