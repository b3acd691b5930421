"""Which of an answer's candidates was sampled, and why not, where none can be told."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from transforms.chat.edges import tells_end, tells_start
from transforms.chat.encoded import Encoded
from transforms.chat.evidence import Proof, prove
from transforms.chat.flags import expected_arguments
from transforms.chat.habits import Blanks, Habit
from transforms.chat.learning import Learned
from transforms.chat.profile import ModelProfile, special_literals
from transforms.chat.rejects import DUMMIES
from transforms.chat.settings import read_settings, thinking_is_off
from transforms.chat.special_tokens import is_prompt_counted
from transforms.chat.statistic import texts_of
from transforms.chat.tokens import load_tokenizer
from transforms.chat.view import Asked
from transforms.codes import Evidence, IssueCode, Repair
from transforms.records import Exchange, Issue, Rendering, ToolCall


@dataclass(frozen=True, slots=True)
class Judged:
    """The ids that were chosen, and what speaks against them."""

    chosen: Encoded
    evidence: Evidence
    residual: int | None
    issues: tuple[Issue, ...]


def judge_candidates(rendering: Rendering, profile: ModelProfile, learned: Learned) -> Judged:
    """The one candidate that the evidence leaves, else the nearest with the reason.

    Raises:
        RecordError: `NOT_ENCODABLE`.
    """
    habit = learned.habit
    proof = prove(rendering.candidates, rendering.exchange, profile, habit)
    chosen = proof.fits[0] if proof.fits else proof.nearest
    issues = (
        *_missing_thought(proof, Asked(rendering.exchange, profile, habit)),
        *_special_text(chosen, profile, fits=bool(proof.fits)),
        *_count(proof, rendering.exchange, habit),
        *_blanks(chosen, proof.evidence, profile, habit),
        *_unknown(chosen, proof, learned, rendering.exchange),
    )
    return Judged(chosen, proof.evidence, proof.residual, tuple(issues))


def _missing_thought(proof: Proof, asked: Asked) -> Iterator[Issue]:
    """No field gives a thought: a stream cannot show an empty one.

    Ids tell whether it was; else a fitting count, with a prompt that was counted as one that opens
    a thought: a host that never thinks closes it there, one token longer, and one end less is
    counted in every answer, chunk by chunk too.
    """
    completion = asked.exchange.completion
    repaired = Repair.THINK_END_IN_CONTENT in proof.nearest.candidate.repairs
    if not asked.thinks or completion.message.reasoning is not None or repaired:
        return
    offset = asked.habit.offset_of_prompt(tools=bool(asked.exchange.prompt.tools))
    opens = is_prompt_counted(asked.exchange, asked.habit) and offset is not None and offset <= 0
    if proof.evidence not in _EXACT and not (completion.chunks and proof.fits and opens):
        yield Issue(IssueCode.REASONING_MISSING, "no field gives a thought, not an empty one")


_EXACT = frozenset({Evidence.A1, Evidence.A2})


def _special_text(chosen: Encoded, profile: ModelProfile, *, fits: bool) -> Iterator[Issue]:
    """Literals in what is ordinary text; the end of the thought may be, where that alone fits."""
    literals = special_literals(profile)
    is_literal = fits and Repair.LITERAL_MARKER_TEXT in chosen.candidate.repairs
    allowed = {profile.answer.thought_end} if is_literal else set()
    for segment in chosen.candidate.segments:
        for found in () if segment.is_special else literals.finditer(segment.text):
            if found[0] not in allowed:
                detail = f"{found[0]!r} at character {found.start()} of {segment.text[:20]!r}…"
                yield Issue(IssueCode.SPECIAL_TEXT_IN_OUTPUT, detail)
                return


def _count(proof: Proof, exchange: Exchange, habit: Habit) -> Iterator[Issue]:
    if proof.residual is None:
        if proof.evidence is Evidence.C:
            yield Issue(IssueCode.USAGE_MISSING, "the answer came without a token count")
    elif len(proof.fits) > 1:
        told = " or ".join(
            sorted({", ".join(f.candidate.repairs) or "as told" for f in proof.fits})
        )
        detail = f"{len(proof.fits)} sequences have the counted length: {told}"
        yield Issue(IssueCode.AMBIGUOUS_CANDIDATES, detail)
    elif not proof.fits:
        rebuilt = len(proof.nearest.ids)
        detail = f"{rebuilt + proof.residual} tokens counted, {rebuilt} ids rebuilt"
        code = explain(proof.residual, proof.nearest, exchange, habit)
        yield Issue(code, detail)


def explain(residual: int, nearest: Encoded, exchange: Exchange, habit: Habit) -> IssueCode:
    """The likeliest reason of a count that does not fit, where the answer shows one."""
    for code, is_likely in _REASONS:
        if is_likely(_Mismatch(residual, nearest, exchange, habit)):
            return code
    return IssueCode.COUNT_MISMATCH


@dataclass(frozen=True, slots=True)
class _Mismatch:
    """What is known of a count that does not fit."""

    residual: int
    nearest: Encoded
    exchange: Exchange
    habit: Habit

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.exchange.completion.message.tool_calls


def _has_dummies(found: _Mismatch) -> bool:
    entries = found.exchange.completion.logprobs
    return bool(entries) and {entry.logprob for entry in entries or ()} <= DUMMIES


def _has_room_for_thought_end(found: _Mismatch) -> bool:
    return found.residual == 1 and Repair.SECTION_IN_REASONING in found.nearest.candidate.repairs


def _has_no_arguments(found: _Mismatch) -> bool:
    """`{}` of a tool that takes some, and more was counted."""
    wanted = expected_arguments(found.exchange.prompt.tools)
    empty = [call for call in found.calls if call.arguments.strip() == "{}"]
    return found.residual > 0 and any(wanted.get(call.name) for call in empty)


def _has_cut_arguments(found: _Mismatch) -> bool:
    whole = (re.fullmatch(r"\s*\{.*\}\s*", call.arguments, re.DOTALL) for call in found.calls)
    return found.residual > 0 and not all(whole)


def _has_room_for_a_call(found: _Mismatch) -> bool:
    message = found.exchange.completion.message
    return found.residual >= _SHORTEST_CALL and bool(found.calls) and not message.content


def _has_cut_thought(found: _Mismatch) -> bool:
    """The thought stops within a sentence before what follows it."""
    message = found.exchange.completion.message
    thought, content = (message.reasoning or "").rstrip(" "), message.content or ""
    return found.residual > 0 and thought[-1:].isalnum() and not content[-1:].isalnum()


def _was_parsed_away(found: _Mismatch) -> bool:
    settings = read_settings(found.exchange.settings)
    return found.residual > 0 and settings.get("tool_choice") == "none"


def _is_trimmed(found: _Mismatch) -> bool:
    return found.residual > 0 and found.habit.blanks is Blanks.TRIMMED


def _is_without_thought(found: _Mismatch) -> bool:
    return thinking_is_off(found.exchange.settings)


_REASONS: tuple[tuple[IssueCode, Callable[[_Mismatch], bool]], ...] = (
    (IssueCode.LOGPROBS_GARBAGE, _has_dummies),
    (IssueCode.MODE_MISMATCH, _is_without_thought),
    (IssueCode.WHITESPACE_TRIMMED_AMBIGUOUS, _is_trimmed),
    (IssueCode.THINK_END_POSITION_UNKNOWN, _has_room_for_thought_end),
    (IssueCode.TOOL_ARGS_LOST, _has_no_arguments),
    (IssueCode.TOOL_ARGS_TRUNCATED, _has_cut_arguments),
    (IssueCode.TOOL_CALL_DROPPED, _has_room_for_a_call),
    (IssueCode.CONTENT_DROPPED, _was_parsed_away),
    (IssueCode.REASONING_TAIL_DROPPED, _has_cut_thought),
)
"""Asked in order."""
_SHORTEST_CALL = 7
"""Tokens: three markers, an id of at least three, arguments of one."""


def _blanks(
    chosen: Encoded, evidence: Evidence, profile: ModelProfile, habit: Habit
) -> Iterator[Issue]:
    """White space at edges that the count does not tell; a server's ids and bytes do."""
    if evidence in {Evidence.A1, Evidence.A2}:
        return
    tokenizer = load_tokenizer(profile)
    for name, text in zip(("thought", "content"), texts_of(chosen), strict=True):
        doubted = habit.blanks is Blanks.TRIMMED or name in habit.unsure_starts
        if not text or not doubted:
            continue
        starts = text[:1].isspace() or tells_start(text, tokenizer)
        if not starts or not tells_end(text, tokenizer):
            detail = f"a blank beside the {name} {text[:20]!r}… would not show in the count"
            yield Issue(IssueCode.LEADING_SPACE_UNKNOWN, detail)


def _unknown(
    chosen: Encoded, proof: Proof, learned: Learned, exchange: Exchange
) -> Iterator[Issue]:
    """A host of which nothing is known; ids and bytes need no habit, streams have their own."""
    if not exchange.completion.provider:
        yield Issue(IssueCode.PROVIDER_UNKNOWN, "the answer names no provider")
    elif not _needs_no_more(proof, learned) and not learned.knows(calls=chosen.has_calls):
        seen = learned.residuals(calls=chosen.has_calls).answers
        kind = "with calls" if chosen.has_calls else "without calls"
        detail = (
            f"{seen} answers {kind} of {exchange.completion.provider} were seen and no habit "
            "explains 95 % of them; ask more prompts, or give --habits of a longer run"
        )
        yield Issue(IssueCode.PROVIDER_UNKNOWN, detail)


def _needs_no_more(proof: Proof, learned: Learned) -> bool:
    """Whether the evidence stands without counts of texts: a model may drift in many answers.

    Of streams that nothing trims: a trimmed line feed may cost nothing.
    """
    habit = learned.habit
    is_stream = proof.evidence is Evidence.A3 and habit.streams_tokens
    streamed = is_stream and not habit.unsure_starts
    return proof.evidence in {Evidence.A1, Evidence.A2} or streamed
