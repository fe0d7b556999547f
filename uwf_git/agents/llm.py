"""What the agents that ask a model of the configuration have in common: which one, and the fields of a request.

`uwf-llm`: a role is done by one completion of a language model, from the prompt alone.

The model is the one of `--model ALIAS`, else of `modelOverrides.agent`, else `defaultModel`. A correction
goes on in the same conversation, which this process remembers; a later process takes it up again from the
turns that the failed attempt left.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.errors import AgentFailed, Usage
from uwf_git.kit import Agent, Reply
from uwf_git.kit.arguments import read_options
from uwf_git.kit.conversation import Conversation
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


def parse_args(args: Sequence[str]) -> Options:
    """Raises Usage."""
    return read_asking("uwf-llm", USAGE, args, ("--model", "--temperature", "--max-tokens"))


class _Conversation(Conversation):
    """The messages of one step, the model's answers among them."""

    def begin(self) -> Reply:
        """One completion of the prompt; after a failed attempt, of its turns and one more message. Raises Invalid
        where no model is configured."""
        self._messages = [{"role": "user", "content": self.ctx.prompt}]
        left = self.carried_on()
        if left is None or self.ctx.resume is None:
            self._session = secrets.token_hex(8)
            return self._complete()
        self._session, message = left
        self._messages += [
            {"role": turn.role, "content": turn.text}
            for turn in self.ctx.resume.turns
            if turn.role in ("user", "assistant")
        ]
        return self.say(message)

    def say(self, text: str) -> Reply:
        """One completion of all that was said so far and this."""
        self._messages.append({"role": "user", "content": text})
        return self._complete()

    def _complete(self) -> Reply:
        from uwf_git.kit.chat import Chat, resolve_endpoint

        ctx, options = self.ctx, self.ctx.options
        model = asked_model("uwf-llm", ctx.config, options.model)
        with Chat(resolve_endpoint(ctx.config, model, ctx.secrets)) as chat:
            done = chat.complete(self._messages, deadline=ctx.deadline, extra=dict(options.extra))
        reply = done.reply(self._session)
        self._messages.append({"role": "assistant", "content": done.text})
        if not done.text.strip():
            why = f" (finish_reason {done.finish})" if done.finish else ""
            hint = "raise --max-tokens" if done.finish == "length" else "try again, or another model"
            raise failed_with(reply, f"model {done.model} gave an empty answer{why}", hint)
        return reply


agent = Agent("uwf-llm", _Conversation, parse_args, USAGE, about=__doc__)
main = agent.main

if __name__ == "__main__":
    main()
