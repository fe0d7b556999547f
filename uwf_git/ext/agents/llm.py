"""`uwf-llm`: one completion of a language model, from the prompt alone.

The model is `--model ALIAS`, else `modelOverrides.agent`, else `defaultModel`. A correction continues the
conversation; a failed step resumes from its attempt's turns.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from uwf_git.kit import Reply
from uwf_git.plugin import Conversation, ModelAgent, ModelArguments, failed_with, read_asking

USAGE = "uwf-llm [--model ALIAS] [--temperature NUMBER] [--max-tokens NUMBER]"


def parse_args(args: Sequence[str]) -> ModelArguments:
    """Raises Usage."""
    return read_asking("uwf-llm", USAGE, args, ("--model", "--temperature", "--max-tokens"))


class _Conversation(Conversation):
    """One step's messages."""

    def begin(self) -> Reply:
        """Complete the prompt, after a failed attempt with its turns. Raises Invalid without a configured
        model."""
        self._messages = [{"role": "user", "content": self.ctx.prompt}]
        rest = self.carried_on()
        if rest is None or self.ctx.resume is None:
            self._session = secrets.token_hex(8)
            return self._complete()
        self._session, message = rest
        self._messages += [
            {"role": turn.role, "content": turn.text}
            for turn in self.ctx.resume.turns
            if turn.role in ("user", "assistant")
        ]
        return self.say(message)

    def say(self, text: str) -> Reply:
        self._messages.append({"role": "user", "content": text})
        return self._complete()

    def _complete(self) -> Reply:
        from uwf_git.plugin import Chat, model_alias, resolve_endpoint

        ctx, options = self.ctx, self.ctx.options
        model = model_alias("uwf-llm", ctx.config, options.model)
        endpoint = resolve_endpoint(ctx.config, model, ctx.secrets)
        ctx.show(model=endpoint.model)
        with Chat(endpoint, cache_key=ctx.thread) as chat:
            done = chat.complete(
                self._messages,
                deadline=ctx.deadline,
                extra=dict(options.extra),
                stream=True,
                hear=ctx.hear,
            )
        reply = done.reply(self._session)
        self._messages.append({"role": "assistant", "content": done.text})
        if (failure := done.no_answer()) is not None:
            raise failed_with(reply, failure.message, failure.hint)
        return reply


agent = ModelAgent("uwf-llm", _Conversation, parse_args, USAGE, __doc__)
main = agent.main

if __name__ == "__main__":
    main()
