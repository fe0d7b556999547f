"""Reading an answer: the one reader for agents, commands, extraction models and `uwf extract`.

The fields are a YAML block between two `---` lines, or one JSON object; a report follows. Agents dress this in
known ways, each of which would cost a correction: a greeting, a code fence, `...` as the second line, an unquoted
colon. The reader tries each place, most regular first; irregular places count only if their fields fit the role's
schema. Text is never read halfway: a block without its closing line, broken JSON, and whatever stands in reasoning
or is called an example is no answer, and two answers that disagree are none.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.engine.kit.coerce import Plain
from uwf_git.format.document import MAX_BYTES, InvalidYaml
from uwf_git.format.node import unique_keys
from uwf_git.format.schema import ValuePath
from uwf_git.format.yaml12 import load, with_comments

_MOST_BLOCKS = 200  # that are read in one answer: of more the first and the last half
_MOST_READ = 3  # characters that may be read as JSON in vain, for each one of the text
_FREE_READ = 1_000_000  # and for any text
_LEAST_READ = 32  # the least count for each place
_WINDOW = 1024  # characters from which JSON is read first

# Both for lines without trailing spaces, which would make matching them quadratic.
_FENCE = r" {0,3}(`{3,}|~{3,})[ \t]*([\w.+-]*)"
_ENTRY = r"([A-Za-z_$][\w$.-]*:[ ]+)(\S.*)"
_MEANT = r"\s*[\w$.\"'-]+[ ]*:(\s|$)"  # prose between two rules is not a broken block
_OPENS = r"(?m)^[ \t]*(?=[{\[])"
_LIST = r"\[\s*[{\[\"]"  # not a word in brackets
_WITHIN = r"[,{\[][ \t]*\r?\n[ \t]*\Z"  # written before a part of a larger value
_THOUGHT = (
    r"(?:[\w:.-]{0,40}[_:.-])?(?:think|thinking|thoughts?|reasoning|reflection|scratch|scratchpad|analysis|monologue"
    r"|plan|planning)(?:[_:.-][\w:.-]{0,40})?"
)
_QUOTED = (
    r"(?:[\w:.-]{0,40}[_:.-])?(?:drafts?|examples?|quotes?|blockquote|details|documents?)"
    r"|(?:tool|function)[_-](?:results?|outputs?|response)"
)
_TAG = (
    rf"(?i)(?<!`)(?:<(?P<tag>{_THOUGHT}|{_QUOTED})(?:[ \t][^>\n]*)?>|<!--"
    r"|<\|begin_of_(?:thought|reasoning)\|>|\[THINK\]"
    rf"|(?m:^(?P<fence>`{{3,}}|~{{3,}})[ \t]*(?:{_THOUGHT})[ \t]*$)"
    rf"|◁think▷|<\|channel\|>(?:analysis|commentary)|(?P<end></(?:{_THOUGHT})>|\[/THINK\]|◁/think▷"
    r"|<\|end_of_(?:thought|reasoning)\|>))"
)
_CALLED_EXAMPLE = (
    r"(?i)\b(?:examples?|e\.g\.|for instance|sample|template|(?:a|first|rough|initial) draft|previous(?:ly)?|earlier"
    r"|(?:first|initial|original) (?:thought|idea|impression|guess)|but later|after (?:your|the|this) fix"
    r"|expect(?:ed)? to|such as|(?:would|might|could) (?:be|say|look|answer|give|write))\b[^\n]*:\W*$"
    r"|\b(?:printed|prints|claims|claimed|returned|responded|becomes|quoted)\W*$"
    r"|^\W*(?:reasoning|thinking|thoughts|scratchpad|drafts?|examples?)\W*$|^(?:\w+[ ])?error: [45]\d\d\b"
)
NO_BLOCK = "the answer does not begin with a block of fields between two lines of ---"
NO_END = "the block of fields has no closing line of ---"
_DECODER = json.JSONDecoder(
    parse_int=Plain, parse_float=Plain, parse_constant=Plain, object_pairs_hook=unique_keys
)

Fits = Callable[[Any], Any]
"""The output that a candidate's value makes; None or False if it makes none."""

Own = Callable[[str], bool]
"""Whether a schema names a field."""


class Answer(NamedTuple):
    r"""`fields` may have `Plain` scalars, which `coerce` types; None if there are none, and `problem` says
    why. `body` is the report below the block, with \n line ends. `comments` are those of the block, which YAML
    leaves out. The block is in line `line`, and `rest` is the text with empty lines for it, its repetitions and
    reasoning."""

    fields: dict[str, Any] | None
    body: str
    problem: str = ""
    comments: tuple[str, ...] = ()
    line: int = 0
    rest: str = ""


class Candidate(NamedTuple):
    """A place that may be the answer, from line `line`. `value` has undecided `Plain` scalars; if `problem` says
    why it cannot be read, it is None. `example`: it stands in reasoning, or is called an example."""

    line: int
    source: str
    value: Any
    problem: str
    regular: bool
    example: bool
    around: Callable[[], str] = str
    comments: tuple[str, ...] = ()

    @property
    def body(self) -> str:
        """The report around the fields."""
        return self.around().strip("\n").rstrip()


class _Place(NamedTuple):
    line: int
    sources: Sequence[str]
    around: Callable[[], str]
    read: Callable[[str, int], tuple[Any, tuple[str, ...]]]
    regular: bool
    problem: str = ""
    guess: bool = False


class _Broken(Exception):
    pass


def cleaned(text: str) -> str:
    r"""Return a text without byte order marks at its line starts, with \n line ends."""
    if "\ufeff" in text:
        text = re.sub(r"(?m)^(\s*)\ufeff", r"\1", text)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_answer(text: str, fits: Fits | None = None, own: Own | None = None) -> Answer:
    """Return the fields and the body of any answer: the first fields that `fits` accepts, otherwise the first
    in a regular place. With `own`, other fields that fit, all of them the schema's, must make the same output.
    Never raises."""
    clean = cleaned(text)
    if not clean.strip():
        return Answer(None, "", "the answer is empty")
    outputs: dict[int, Any] = {}

    def accepts(value: Any) -> bool:
        if not isinstance(value, dict) or fits is None:
            return False
        outputs[id(value)] = output = fits(value)
        return output is not None and output is not False

    regular: Answer | None = None
    chosen: tuple[Any, Answer] | None = None
    taken: list[Candidate] = []
    problem = ""
    for candidate in candidates(clean, accepts):
        if candidate.problem:
            meant = candidate.source.startswith("{") or re.match(_MEANT, candidate.source)
            if candidate.regular and not problem and meant and not candidate.example:
                problem = candidate.problem
            continue
        fields = candidate.value
        if not isinstance(fields, dict):
            continue
        output = outputs.get(id(fields))
        fit = output is not None and output is not False
        if candidate.example:
            if fit and not problem:
                problem = f"what fits in line {candidate.line} is within reasoning, or called an example"
            continue
        if fit and (candidate.regular or own is None or any(map(own, fields))):
            if chosen is None:
                chosen = output, _answer(candidate)
            elif output != chosen[0] and own is not None and all(map(own, fields)) and fields:
                return Answer(None, chosen[1].body, disagree((taken[0].line, candidate.line)))
            if output == chosen[0]:
                taken.append(candidate)
            if own is None:
                break
        if regular is None and candidate.regular:
            regular = _answer(candidate)
            if fits is None:
                break
    if chosen is not None:
        return chosen[1]._replace(line=taken[0].line, rest=without(clean, taken))
    return regular or Answer(None, clean.strip("\n").rstrip(), problem or NO_BLOCK)


def _answer(candidate: Candidate) -> Answer:
    return Answer(candidate.value, candidate.body, "", candidate.comments)


def without(text: str, taken: Iterable[Candidate]) -> str:
    """Return a `cleaned` text with empty lines for its reasoning and what was taken from it."""
    lines = _without_reasoning(text)[0].split("\n")
    for candidate in taken:
        end = min(candidate.line + candidate.source.rstrip().count("\n"), len(lines))
        lines[candidate.line - 1 : end] = [""] * (end - candidate.line + 1)
    return "\n".join(lines)


def unfinished(text: str) -> int | None:
    """Return the line of the fence, block or object that a `cleaned` text begins at its end, if it does."""
    lines = text.rstrip().split("\n")
    fences = _fences(lines)
    opens_fence = bool(fences) and fences[-1][1] is None and fences[-1][0] == len(lines) - 1
    if opens_fence or re.fullmatch(r"`{1,2}|~{1,2}|-{1,2}", lines[-1].strip()):
        return len(lines)
    rules = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    if len(rules) % 2 and re.fullmatch(r"\s*[\w$\"'-]{0,60}", _joined(lines[rules[-1] + 1 :]).rstrip()):
        return rules[-1] + 1
    return len(lines) if re.search(r"[{\[]\s*[\"'][^{}\[\]\n]*\Z", lines[-1][-2000:]) else None


def is_cut(source: str) -> bool:
    """Return whether a text is the beginning of JSON."""
    try:
        _DECODER.raw_decode(source)
    except json.JSONDecodeError as error:
        return _needs_more(source, error)
    except (ValueError, RecursionError, Invalid):
        pass
    return False


def _needs_more(source: str, error: json.JSONDecodeError) -> bool:
    """Return whether JSON could not be read because its text ends."""
    return error.msg.startswith("Unterminated") or bool(
        re.fullmatch(r"[\s,]*[\w.+\\-]{0,20}\s*", source[error.pos : error.pos + 1000])
    )


def disagree(lines: Sequence[int]) -> str:
    """Return the problem of answers that begin in these lines and disagree."""
    listed = ", ".join(map(str, sorted(set(lines))))
    return f"it holds answers that disagree, in lines {listed}: give one"


def candidates(
    text: str,
    accepts: Callable[[Any], bool] = lambda value: False,
    concerns: Callable[[str], object] = lambda source: True,
) -> Iterator[Candidate]:
    """Yield all places of a `cleaned` text that may hold an answer, most regular first. A place that can be
    read in two ways is read as `accepts` has it. Irregular ones are left out if none `concerns` the caller."""
    whole = text.strip()
    if whole.startswith("{") and whole.endswith("}"):
        place = _Place(1 + text[: text.index("{")].count("\n"), (whole,), str, _json, True)
        only = _candidate(place, accepts, False)
        if only.value is not None or only.problem:
            yield only
        if only.value is not None:
            return
    shown, hidden = _without_reasoning(text)
    yield from _visible(shown, accepts, concerns, text if hidden else None)
    # Reasoning is read too, since nobody may take a draft for an answer that isn't there.
    for start, end in hidden:
        before = text[:start].count("\n")
        for draft in _visible(re.sub(_TAG, "", text[start:end], count=1), accepts, concerns, None):
            yield draft._replace(line=before + draft.line, regular=False, example=True)


def _visible(
    text: str, accepts: Callable[[Any], bool], concerns: Callable[[str], object], raw: str | None
) -> Iterator[Candidate]:
    if not text.strip():
        return
    lines, before = text.split("\n"), None if raw is None else raw.split("\n")
    top = next(number for number, line in enumerate(lines) if line.strip())

    def is_wanted(place: _Place) -> bool:
        return bool(place.problem) or place.line - 1 <= top or any(map(concerns, place.sources))

    blocks = [*filter(is_wanted, _blocks(lines, top))]
    if len(blocks) > _MOST_BLOCKS:
        del blocks[_MOST_BLOCKS // 2 : -_MOST_BLOCKS // 2]
    for place in itertools.chain(blocks, filter(is_wanted, _json_places(lines))):
        first = place.line - 1
        example = _is_example(lines, top, first)
        height = place.sources[0].count("\n") + 1
        inside = range(first + 1, min(first + height, len(lines)))
        if before is not None and (
            not before[first].endswith(lines[first])
            or any(before[number] != lines[number] for number in inside)
        ):
            problem = f"reasoning stands among the fields in line {place.line} of the answer"
            yield Candidate(place.line, place.sources[0], None, problem, place.regular, example)
            continue
        candidate = _candidate(place, accepts, example)
        if candidate.value is not None or not place.guess:
            yield candidate


def _candidate(place: _Place, accepts: Callable[[Any], bool], example: bool) -> Candidate:
    first: tuple[Any, tuple[str, ...]] | None = None
    problem = place.problem
    for source in () if problem else dict.fromkeys(place.sources):
        try:
            value = place.read(source, place.line)
        except _Broken as error:
            problem = problem or str(error)
            continue
        accepted = accepts(value[0])
        if first is None or accepted:
            first = value
        if accepted:
            break
    source = place.sources[0]
    if first is None:
        return Candidate(place.line, source, None, problem, place.regular, example)
    return Candidate(place.line, source, first[0], "", place.regular, example, place.around, first[1])


def _without_reasoning(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text in which only the line ends of its reasoning and quotations are left, and where these stand."""
    spans: list[tuple[int, int]] = []
    at = 0
    while (tag := re.compile(_TAG).search(text, at)) is not None:
        line = text.rfind("\n", 0, tag.start()) + 1
        opens_line = not text[line : tag.start()].strip()
        at = tag.end()
        if tag["end"]:  # the template of some models writes the first tag itself
            after = text[at : text.find("\n", at) if "\n" in text[at:] else len(text)]
            if opens_line or not after.strip():
                spans = [(0, at)]
            continue
        closing = _closing(tag).search(text, at)
        if closing is None and opens_line:
            spans.append((tag.start(), len(text)))
            break
        if closing is not None and (opens_line or "\n" in text[at : closing.start()]):
            spans.append((tag.start(), closing.end()))
            at = closing.end()
    parts, end = [], 0
    for start, stop in spans:
        parts += [text[end:start], "\n" * text.count("\n", start, stop)]
        end = stop
    return "".join((*parts, text[end:])), spans


def _closing(tag: re.Match[str]) -> re.Pattern[str]:
    if name := tag["tag"]:
        return re.compile(rf"</{re.escape(name)}>", re.IGNORECASE)
    if tag["fence"]:
        return re.compile(rf"^{tag['fence']}[ \t]*$", re.MULTILINE)
    opening = tag[0].lower()
    ends = {"<!--": "-->", "[think]": r"\[/THINK\]", "◁think▷": "◁/think▷"}
    if opening.startswith("<|channel"):
        return re.compile(r"<\|channel\|>final(?:<\|message\|>)?", re.IGNORECASE)
    return re.compile(ends.get(opening, r"<\|end_of_(?:thought|reasoning)\|>"), re.IGNORECASE)


def _is_example(lines: list[str], top: int, start: int) -> bool:
    """Return whether the last words before a place call it an example or a draft."""
    for line in reversed(lines[max(top, start - 5) : start]):
        if line.strip() and line.rstrip() not in ("---", "...") and not re.fullmatch(_FENCE, line.rstrip()):
            return re.search(_CALLED_EXAMPLE, line[-500:]) is not None
    return False


def _blocks(lines: list[str], top: int) -> Iterator[_Place]:
    """Yield the blocks between rules and fences."""
    rules = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    closing = -1
    for start in rules:
        end, body = _block(lines, start)
        inside = lines[start + 1 : end]
        if end is None:
            if start != closing:
                yield _Place(start + 2, (_joined(inside),), str, _yaml, start == top, NO_END)
        elif any(map(str.strip, inside)) or start == top:
            yield _Place(start + 2, _as_written_and_quoted(inside), body, _yaml, True)
            closing = end if re.match(_MEANT, _joined(inside)) else -1
    fences = _fences(lines)
    for opening, end, language in fences:
        inside = lines[opening + 1 : end]
        around = partial(_around, lines, opening, len(lines) if end is None else end + 1)
        problem = "the code fence has no end" if end is None else ""
        source = _joined(inside).strip()
        if source.startswith("{"):
            only = len(fences) == 1
            at = opening + 2 + next(number for number, line in enumerate(inside) if line.strip())
            yield _Place(at, (source,), around, _json, only, problem)
        elif language in ("", "yaml", "yml") and not source.startswith("---"):
            yield _Place(opening + 2, _as_written_and_quoted(inside), around, _yaml, False, problem)
    if rules and rules[0] > top:
        below = partial(_around, lines, top, rules[0] + 1)
        yield _Place(top + 1, _as_written_and_quoted(lines[top : rules[0]]), below, _yaml, False, guess=True)


def _json_places(lines: list[str]) -> Iterator[_Place]:
    """Yield the objects and lists that begin on a line, with nothing behind them on their last one. Of a text in which
    too much is read in vain the last ones are read, since an answer ends its text."""
    fences = _fences(lines)
    if fences and fences[-1][1] is None:
        lines = lines[: fences[-1][0]]
    text = _joined(lines)
    size, most = len(text.rstrip()), _FREE_READ + _MOST_READ * len(text)
    openings = re.finditer(_OPENS, text)
    end, line, counted, paragraph = 0, 1, 0, 0
    for opening in openings:
        start = opening.end()
        if start < end or _is_part(text, opening):
            continue
        line, counted = line + text.count("\n", counted, start), start
        stop, error = _read_json(text, opening)
        if error is None and _ends_line(text, stop):
            end = stop
            yield _json_place(text, lines, line, start, stop)
            continue
        most -= _LEAST_READ + stop - opening.start()
        if error is not None and (text[start] == "{" or re.compile(_LIST).match(text, start)):
            is_first = start >= paragraph
            if is_first:
                blank = text.find("\n\n", start)
                paragraph = blank if blank >= 0 else len(text)
            # The first broken place of a paragraph has all of it, so the others don't need it.
            source = text[start : min(start + MAX_BYTES if is_first else stop + _WINDOW, paragraph)]
            problem = _broken(error, size - opening.start(), line, line - 1)
            yield _Place(line, (source,), str, _json, False, problem)
        if most < 0:
            yield from _last_json_places(text, lines, [*openings])


def _last_json_places(text: str, lines: list[str], openings: Sequence[re.Match[str]]) -> Iterator[_Place]:
    most = _FREE_READ + _MOST_READ * len(text)
    spans: list[tuple[int, int]] = []
    for opening in reversed(openings):
        if most < 0:
            break
        if _is_part(text, opening):
            continue
        stop, error = _read_json(text, opening)
        most -= _LEAST_READ + stop - opening.start()
        if error is None and _ends_line(text, stop):
            while spans and spans[-1][0] < stop:
                spans.pop()
            spans.append((opening.end(), stop))
    line, counted = 1, 0
    for start, stop in reversed(spans):
        line, counted = line + text.count("\n", counted, start), start
        yield _json_place(text, lines, line, start, stop)


def _json_place(text: str, lines: list[str], line: int, start: int, stop: int) -> _Place:
    last = line + text.count("\n", start, stop)
    return _Place(line, (text[start:stop],), partial(_around, lines, line - 1, last), _json, False)


def _is_part(text: str, opening: re.Match[str]) -> bool:
    """Return whether a place is within a larger value."""
    return re.compile(_WITHIN).search(text, max(0, opening.start() - 200), opening.end()) is not None


def _ends_line(text: str, at: int) -> bool:
    stop = text.find("\n", at)
    return not text[at : stop if stop >= 0 else len(text)].strip(" \t,;")


def _read_json(text: str, opening: re.Match[str]) -> tuple[int, Exception | None]:
    """Return where JSON ends, or up to where it was read, and why no further. It is read from windows of the text: an
    error counts the lines of all that is before it, and is no error of the text if a window's end caused it."""
    begin, size = opening.start(), opening.end() - opening.start() + _WINDOW
    while True:
        window = text[begin : begin + size]
        try:
            return begin + _DECODER.raw_decode(window, opening.end() - begin)[1], None
        except json.JSONDecodeError as error:
            if begin + size >= len(text) or not _needs_more(window, error):
                return begin + error.pos, error
        except (ValueError, RecursionError, Invalid) as error:
            return begin + len(window), error
        size *= 4


def _fences(lines: list[str]) -> list[tuple[int, int | None, str]]:
    """Return the code fences: the lines of their marks, None if one has no end, and their languages."""
    fences: list[tuple[int, int | None, str]] = []
    opening: tuple[int, str, str] | None = None
    for number, line in enumerate(lines):
        if (mark := re.fullmatch(_FENCE, line.rstrip())) is None:
            continue
        if opening is None:
            opening = number, mark[1], mark[2].lower()
        elif _closes(line.strip(), opening[1]):
            fences.append((opening[0], number, opening[2]))
            opening = None
    return fences if opening is None else [*fences, (opening[0], None, opening[2])]


def _around(lines: list[str], start: int, end: int) -> str:
    return "\n".join([*lines[:start], *lines[end:]])


def _as_written_and_quoted(lines: list[str]) -> tuple[str, str]:
    return _joined(lines), _quoted(lines)


def _joined(lines: list[str]) -> str:
    # The last line end counts: a literal block at the end has it or not.
    return "".join(f"{line}\n" for line in lines)


def _block(lines: list[str], start: int) -> tuple[int | None, Callable[[], str]]:
    """Return the end of the block opened at `start`, and the body. A fence right before the block either
    closes with it or wraps the whole answer."""
    before = next((lines[number] for number in range(start - 1, -1, -1) if lines[number].strip()), "")
    opening = re.fullmatch(_FENCE, before.rstrip())
    for end in range(start + 1, len(lines)):
        line = lines[end].rstrip()
        if line in ("---", "..."):
            return end, partial(_below, lines, end, opening[1] if opening else "")
        if opening and _closes(line, opening[1]):
            return end, partial(_below, lines, end, "")
    return None, str


def _below(lines: list[str], end: int, fence: str) -> str:
    return "\n".join(_unfenced(lines[end + 1 :], fence) if fence else lines[end + 1 :])


def _closes(line: str, fence: str) -> bool:
    line = line.rstrip()
    return len(line) >= len(fence) and line == fence[0] * len(line)


def _unfenced(lines: list[str], fence: str) -> list[str]:
    marks = [number for number, line in enumerate(lines) if re.fullmatch(_FENCE, line.rstrip())]
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if not filled:
        return []
    closing = [number for number in marks if _closes(lines[number], fence)]
    if closing and closing[0] == filled[0]:
        return lines[: filled[0]] + lines[filled[0] + 1 :]
    if closing and closing[-1] == filled[-1] and len(marks) % 2:
        return lines[: closing[-1]]
    inside = False
    for number in marks:
        if not inside and number in closing:
            return lines[:number] + lines[number + 1 :]
        inside = not inside
    return lines


def _quoted(lines: list[str]) -> str:
    """Return the block with quotes around one-line values that YAML cannot read without them (a colon, a
    leading `@`, `*`, backtick or bracket, nested quotes), and tabs in indentation replaced."""
    return _joined([_quoted_line(line) for line in lines])


def _quoted_line(line: str) -> str:
    indent = len(line) - len(line.lstrip("\t"))
    line = "  " * indent + line[indent:].rstrip()
    if not (entry := re.fullmatch(_ENTRY, line)):
        return line
    key, value = entry[1], entry[2]
    first, last = value[0], value[-1]
    if first == '"' and last == '"' and len(value) > 1:
        inner = re.sub(r'(?<!\\)"', r"\\" + '"', value[1:-1])
        return f'{key}"{inner}"'
    broken = ": " in value or last == ":" or first in "@`%*"
    # "[WIP] add a test" is text. An unclosed block was cut off.
    unbalanced = any(
        first == opening and last != closing and value.count(opening) == value.count(closing)
        for opening, closing in ("[]", "{}")
    )
    if (broken and first not in "\"'|>[{&!") or unbalanced:
        return key + json.dumps(value, ensure_ascii=False)
    return line


def _json(source: str, line: int) -> tuple[Any, tuple[str, ...]]:
    if len(source) > MAX_BYTES:
        raise _Broken(f"the JSON in line {line} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return _DECODER.decode(source), ()
    except (ValueError, RecursionError, Invalid) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            return None, ()  # several values: each is a place
        raise _Broken(_broken(error, len(source), line, line - 1)) from None


def _broken(error: Exception, size: int, line: int, above: int) -> str:
    """Return why JSON that begins in a line cannot be read, and where its reading stopped: in a text of a size, which
    has some lines above it."""
    if isinstance(error, Invalid):
        return f"the JSON in line {line} of the answer: {error.message}"
    if not isinstance(error, json.JSONDecodeError):
        return f"the JSON in line {line} of the answer is nested too deeply"
    if error.pos >= size or error.msg.startswith("Unterminated"):
        return f"the JSON object has no end: it begins in line {line} of the answer"
    where = f"line {above + error.lineno}, column {error.colno} of the answer"
    return f"not JSON from {where} on: {error.msg[:1].lower()}{error.msg[1:]}"


def _yaml(source: str, line: int) -> tuple[Any, tuple[str, ...]]:
    if not source.strip():
        return {}, ()
    text, comments = with_comments(source)
    try:
        document = load(text, "the block of fields", tolerant=True)
    except InvalidYaml as error:
        where = f"line {line + error.mark.line - 1} of the answer"
        hint = f" ({error.hint})" if error.hint else ""
        raise _Broken(f"the block of fields is not YAML: {where}: {error.problem}{hint}") from None
    except Invalid as error:
        raise _Broken(error.message) from None
    if not isinstance(document.data, dict):
        return None, ()
    return _undecided(document.data, (), document.scalars), comments


def _undecided(value: Any, path: ValuePath, scalars: Mapping[ValuePath, str]) -> Any:
    if isinstance(value, dict):
        return {key: _undecided(item, (*path, key), scalars) for key, item in value.items()}
    if isinstance(value, list):
        return [_undecided(item, (*path, number), scalars) for number, item in enumerate(value)]
    return value if isinstance(value, str) else Plain(scalars[path])
