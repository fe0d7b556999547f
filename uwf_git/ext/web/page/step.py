"""Common parts of steps on pages: author, result, spending, turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uwf_git.plugin import SpendingTotals, brief, cut_text, in_dollars, markup, plain_text, tag

if TYPE_CHECKING:
    from uwf_git.plugin import Price, TurnRecord

_GIST = 120
_PROSE = 20_000  # characters of a turn that are rendered


def amounts(spent: SpendingTotals | None, prices: Mapping[str, Price]) -> list[str]:
    """Return known tokens, cost and time."""
    if spent is None:
        return []
    tokens, paid = spent.tokens, spent.money(prices)
    parts = [f"{tokens.total:,} tokens"] if tokens is not None else []
    parts += [in_dollars(paid.cost, paid.unpriced)] if paid.cost is not None else []
    parts += [lasted(spent.seconds)] if spent.seconds >= 0.05 else []
    return parts


def took(bar: Mapping[str, Any]) -> list[str]:
    """Return the known tokens, cost and time of a bar."""
    parts = [f"{bar['tokens']:,} tokens"] if bar["tokens"] is not None else []
    parts += [in_dollars(bar["cost"], bar["unpriced"])] if bar["cost"] is not None else []
    parts += [lasted(bar["seconds"])] if (bar["seconds"] or 0) >= 0.05 else []
    return parts


def lasted(seconds: float) -> str:
    """Format seconds: "0.4 s", "3 min 12 s", "1 h 4 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def turn(record: TurnRecord) -> str:
    """Return a turn as HTML, tool calls folded."""
    kind = f"turn {record.role if record.role.isalpha() else ''}"
    if record.tool is None:
        text = record.text.strip()
        words = (
            markup.answer(cut_text(text, _PROSE)) if record.role == "assistant" else markup.pre(record.text)
        )
        return tag("div", tag("strong", markup.text(record.role)) + (words if text else ""), kind)
    parts = []
    if record.arguments not in (None, {}):
        parts.append(tag("p", "arguments", "meta") + markup.pre(plain_text(record.arguments)))
    if record.result not in (None, ""):
        parts.append(tag("p", "result", "meta") + markup.pre(plain_text(record.result)))
    if (
        (text := record.text.strip())
        and text not in plain_text(record.result)
        and not _is_in(text, record.result)
    ):
        parts.append(markup.pre(record.text))
    failed = tag("span", ", failed", "is-no") if record.failed else ""
    title = tag("strong", markup.text(brief(record.tool, _GIST))) + failed
    if called := _first_text(record.arguments):
        title += " " + tag("code", markup.text(called))
    return tag("div", markup.fold(title, "".join(parts)) if parts else title, kind)


def _is_in(words: str, result: Any) -> bool:
    """Return whether a value of a tool's result is a text, or the whole is."""
    values = (
        result.values() if isinstance(result, Mapping) else result if isinstance(result, list) else (result,)
    )
    return words == plain_text(result).strip() or any(
        isinstance(value, str) and words in value for value in values
    )


def _first_text(arguments: Any) -> str:
    parts = arguments.values() if isinstance(arguments, Mapping) else (arguments,)
    return brief(next((one for one in parts if isinstance(one, str)), ""), 80)
