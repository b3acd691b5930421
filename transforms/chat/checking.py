"""Checks of a profile: against its tokenizer, published vectors and the model's own template."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from transforms.chat.candidates import write_candidates
from transforms.chat.carriers import find_files
from transforms.chat.chat_template import encode_marked, read_tokenizer_config
from transforms.chat.conversations import sample_exchange, sample_prompts
from transforms.chat.encoded import Encoded, encode
from transforms.chat.habits import Habit
from transforms.chat.profile import ModelProfile, Vector, all_special_tokens
from transforms.chat.render import render_prompt
from transforms.chat.special_tokens import find_issues
from transforms.chat.tokens import Tokenizer, open_tokenizer
from transforms.chat.view import Asked
from transforms.codes import Evidence
from transforms.failures import ConfigError, RecordError
from transforms.records import Sample


class Result(StrEnum):
    """What came of a check."""

    OK = "ok"
    FAILED = "FAILED"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result, and what was compared; of a failure the first difference."""

    name: str
    result: Result
    detail: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A profile and what it is held against.

    Attributes:
        vectors: Texts and ids beside the profile's own; special literals in them are the tokens.
        template: Source of the model's chat template, if it can be had.
    """

    profile: ModelProfile
    vectors: tuple[Vector, ...] = ()
    template: str | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        return open_tokenizer(self.profile)

    @property
    def modes(self) -> tuple[bool, ...]:
        """Thinking on, and off where the profile knows that."""
        return (True, False) if self.profile.prompt.ends_with_off else (True,)


class _DifferenceError(Exception):
    """The first difference that a check found."""


def check_profile(subject: Subject) -> Iterator[Finding]:
    """One finding a check, in order.

    Raises:
        ConfigError: The tokenizer's files cannot be had.
    """
    open_tokenizer(subject.profile)
    for name, check in CHECKS.items():
        try:
            yield Finding(name, *check(subject))
        except (_DifferenceError, ConfigError) as error:
            yield Finding(name, Result.FAILED, str(error))
        except RecordError as error:
            yield Finding(name, Result.FAILED, f"{error.kind}: {error.detail}")


def _check_vocabulary(subject: Subject) -> tuple[Result, str]:
    profile, size = subject.profile, subject.tokenizer.size
    if size != profile.tokenizer.vocabulary:
        wanted = profile.tokenizer.vocabulary
        raise _DifferenceError(f"the tokenizer has {size} tokens, the profile says {wanted}")
    digest = (profile.tokenizer.sha256 or "not told")[:12]
    return Result.OK, (
        f"{profile.name}, sha256 {profile.sha256[:12]}; {size} tokens, "
        f"{profile.tokenizer.file} sha256 {digest}"
    )


def _check_vectors(subject: Subject) -> tuple[Result, str]:
    profile, tokenizer = subject.profile, subject.tokenizer
    own = profile.tokenizer.vectors
    for vector in own:
        _compare(repr(vector.text), vector.ids, tokenizer.encode(vector.text), tokenizer)
    for vector in subject.vectors:
        found = encode_marked(vector.text, profile, tokenizer)
        _compare(repr(vector.text), vector.ids, found, tokenizer)
    return Result.OK, f"{len(own)} of the profile, {len(subject.vectors)} given"


def _check_special_tokens(subject: Subject) -> tuple[Result, str]:
    profile, tokenizer = subject.profile, subject.tokenizer
    tokens, library = all_special_tokens(profile), tokenizer.for_prompts()
    for literal, number in tokens.items():
        if (found := library.convert_tokens_to_ids(literal)) != number:
            raise _DifferenceError(
                f"{literal!r}: the tokenizer's id {found}, the profile's {number}"
            )
        if (text := tokenizer.decode([number])) != literal:
            raise _DifferenceError(f"id {number}: {literal!r} wanted, {text!r} found")
        if number in (ids := tokenizer.encode(literal)):
            raise _DifferenceError(f"{literal!r} as ordinary text gives {ids}: its special id")
    told = _told_tokens(find_files(profile.tokenizer))
    for literal, number in profile.special_tokens.items() if told else ():
        if (wanted := told.get(literal)) != number:
            detail = f"{literal!r}: id {wanted} in tokenizer_config.json, {number} in the profile"
            raise _DifferenceError(detail)
    beside = ", as in tokenizer_config.json" if told else ""
    return Result.OK, f"{len(tokens)} literals and ids both ways, none out of text{beside}"


def _told_tokens(folder: Path) -> dict[str, int]:
    """Literal -> id as the model's own tokenizer_config.json has them, if it does."""
    told = read_tokenizer_config(folder).get("added_tokens_decoder") or {}
    return {entry["content"]: int(number) for number, entry in told.items()}


def _check_answer(subject: Subject) -> tuple[Result, str]:
    """An answer with all parts is written, encoded and accepted as the grammar's."""
    profile, exchange = subject.profile, sample_exchange(subject.profile)
    habit = Habit()
    candidates, _ = write_candidates(Asked(exchange, profile, habit), cut=False)
    answer = encode(candidates[0], profile)
    prompt = render_prompt(exchange.prompt, profile)
    sample = Sample(
        exchange=exchange,
        input_ids=(*prompt, *answer.ids),
        prompt_length=len(prompt),
        special_positions=tuple(len(prompt) + place for place in answer.specials),
        text=answer.text,
        residual=None,
        evidence=Evidence.C,
        repairs=candidates[0].repairs,
        issues=(),
    )
    for issue in find_issues(sample, profile, habit):
        raise _DifferenceError(f"{issue.code}: {issue.detail}")
    _check_parts(answer, profile)
    return Result.OK, f"{len(answer.ids)} ids, {len(answer.specials)} of them special"


def _check_parts(answer: Encoded, profile: ModelProfile) -> None:
    if answer.candidate.repairs:
        raise _DifferenceError(f"the sample answer needs {', '.join(answer.candidate.repairs)}")
    if (text := open_tokenizer(profile).decode(answer.ids)) != answer.text:
        raise _DifferenceError(f"{answer.text!r} comes back as {text!r}")


def _check_endings(subject: Subject) -> tuple[Result, str]:
    profile, tokenizer = subject.profile, subject.tokenizer
    grammar, count = profile.prompt, 0
    for thinks in subject.modes:
        pieces = grammar.ends_with if thinks else grammar.ends_with_off
        wanted = encode_marked("".join(pieces), profile, tokenizer)
        for name, prompt in sample_prompts(profile).items():
            ids = render_prompt(prompt, profile, thinks=thinks)
            _compare(_place(name, thinks), wanted, ids[len(ids) - len(wanted) :], tokenizer)
            count += 1
    return Result.OK, f"{count} prompts end in {''.join(grammar.ends_with)!r}{_off(subject)}"


def _off(subject: Subject) -> str:
    ending = "".join(subject.profile.prompt.ends_with_off)
    return f", {ending!r} with thinking off" if ending else ""


def _check_template(subject: Subject) -> tuple[Result, str]:
    if subject.template is None:
        return Result.NOT_CHECKED, "no chat template beside the tokenizer; give --template FILE"
    profile, count = subject.profile, 0
    oracle = _with_template(profile, subject.template)
    for thinks in subject.modes:
        opening = () if profile.prompt.opens_thought or not thinks else _opening(profile)
        for name, prompt in sample_prompts(profile).items():
            wanted = (*render_prompt(prompt, oracle, thinks=thinks), *opening)
            found = render_prompt(prompt, profile, thinks=thinks)
            _compare(_place(name, thinks), wanted, found, subject.tokenizer)
            count += 1
    notes = _template_notes(subject.template, profile)
    return Result.OK, "; ".join((f"{count} prompts, id for id", *notes))


def _template_notes(source: str, profile: ModelProfile) -> Iterator[str]:
    """What an agreement leaves open."""
    if not profile.prompt.opens_thought:
        yield "it does not open the thought: hosts of it have the habit prefills = false"
    if profile.answer.tools and "tools_ts_str" in source:
        yield "tools as TypeScript are by `renderers` in both"


def _with_template(profile: ModelProfile, source: str) -> ModelProfile:
    """The profile, its prompts rendered by a template, which decides alone what it shows."""
    prompt = msgspec.structs.replace(profile.prompt, template=source, thoughts_off=True)
    return msgspec.structs.replace(profile, prompt=prompt)


def _opening(profile: ModelProfile) -> tuple[int, ...]:
    mark = profile.answer.thought_begin
    return () if mark is None else (profile.special_tokens[mark],)


def _place(name: str, thinks: bool) -> str:
    return f"prompt {name!r}" + ("" if thinks else ", thinking off")


_SHOWN = 8
"""Ids from the first difference on."""


def _compare(what: str, wanted: Sequence[int], found: Sequence[int], tokenizer: Tokenizer) -> None:
    if list(wanted) == list(found):
        return
    pairs = enumerate(zip(wanted, found, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(wanted), len(found)))
    want, have = (_show(ids[at : at + _SHOWN], tokenizer) for ids in (wanted, found))
    raise _DifferenceError(f"{what}, id {at}: wanted {want}, found {have}")


def _show(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    is_known = all(0 <= number < tokenizer.size for number in ids)
    return f"{list(ids)} {tokenizer.decode(ids)!r}" if is_known else f"{list(ids)}"


CHECKS: dict[str, Callable[[Subject], tuple[Result, str]]] = {
    "profile": _check_vocabulary,
    "vectors": _check_vectors,
    "special tokens": _check_special_tokens,
    "answer": _check_answer,
    "prompt ends": _check_endings,
    "template": _check_template,
}
