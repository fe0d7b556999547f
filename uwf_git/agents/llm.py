"""What the agents that ask a model of the configuration have in common: which one, and the fields of a request.

`uwf-llm`: a role is done by one completion of a language model, from the prompt alone.

The model is the one of `--model ALIAS`, else of `modelOverrides.agent`, else `defaultModel`. A correction
goes on in the same conversation, which this process remembers; a later process takes it up again from the
turns that the failed attempt left.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.errors import AgentFailed, Usage
from uwf_git.kit import Context, Reply, create_agent
from uwf_git.kit.arguments import read_options
from uwf_git.kit.extract import failed_with

if TYPE_CHECKING:
    from uwf_git.config.settings import Config

SCENARIO = "agent"
_NUMBERS = {"--temperature": float, "--max-tokens": int, "--turns": int}


class Asking(NamedTuple):
    """`model` is an alias of the configuration, None for its default; `extra` are fields of a request; `turns` how
    often the model is asked at the most, None where nothing was said."""

    model: str | None = None
    extra: tuple[tuple[str, int | float], ...] = ()
    turns: int | None = None


def read_asking(agent: str, usage: str, args: Sequence[str], known: Sequence[str]) -> Asking:
    """The options of such an agent, of which it has those `known`. Raises Usage."""
    given, rest = read_options(agent, usage, args, known)
    if rest:
        raise Usage(f"{agent} has no argument {rest[0]}", usage)
    asking = Asking()
    for name, value in given:
        if name == "--model":
            asking = asking._replace(model=value)
            continue
        try:
            number = _NUMBERS[name](value)
        except ValueError:
            raise Usage(f"{agent}: {name} {value!r} is no number", usage) from None
        if name == "--turns":
            asking = asking._replace(turns=int(number))
        else:
            field = name.removeprefix("--").replace("-", "_")
            asking = asking._replace(extra=(*asking.extra, (field, number)))
    return asking


def asked_model(agent: str, config: Config, alias: str | None) -> str:
    """The alias of the model to ask: the one named, else that of the configuration. Raises AgentFailed where there
    is none, Invalid where the configuration's leads nowhere."""
    from uwf_git.config.read import resolve_model

    if alias is not None:
        return alias
    model = resolve_model(config, SCENARIO)
    if model is None:
        raise AgentFailed(f"{agent} has no model to ask", "set one up with: uwf setup")
    return model.alias


USAGE = "uwf-llm [--model ALIAS] [--temperature NUMBER] [--max-tokens NUMBER]"
Options = Asking

Message = dict[str, Any]
_conversations: dict[str, list[Message]] = {}
"""By session, which nobody shares: a session's name is random."""


def parse_args(args: Sequence[str]) -> Options:
    """Raises Usage."""
    return read_asking("uwf-llm", USAGE, args, ("--model", "--temperature", "--max-tokens"))


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
    from uwf_git.kit.chat import Chat, resolve_endpoint

    options: Options = ctx.options
    model = asked_model("uwf-llm", ctx.config, options.model)
    endpoint = resolve_endpoint(ctx.config, model, ctx.secrets)
    with Chat(endpoint) as chat:
        done = chat.complete(messages, deadline=ctx.deadline, extra=dict(options.extra))
    reply = done.reply(session)
    _conversations[session] = [*messages, {"role": "assistant", "content": done.text}]
    if not done.text.strip():
        why = f" (finish_reason {done.finish})" if done.finish else ""
        hint = "raise --max-tokens" if done.finish == "length" else "try again, or another model"
        raise failed_with(reply, f"model {done.model} gave an empty answer{why}", hint)
    return reply


agent = create_agent("uwf-llm", run, continue_, parse_args, USAGE)
main = agent.main

if __name__ == "__main__":
    main()
