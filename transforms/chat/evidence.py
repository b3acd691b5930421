"""Which ids an answer was sampled as, and what proves it: server ids, bytes, chunks, counts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from transforms.chat.encoded import Encoded, encode
from transforms.chat.habits import Habit, ThoughtCount
from transforms.chat.profile import ModelProfile, all_special_tokens
from transforms.chat.rejects import DUMMIES
from transforms.chat.tokens import Tokenizer, load_tokenizer
from transforms.codes import Evidence, Repair
from transforms.records import Candidate, Completion, Exchange, Segment

_REAL_STREAM = 0.2
"""Least share of an answer's time from the first to the last chunk: a finished answer that is sent
as a stream comes at once (vercel/ai#4324), and its chunks prove nothing."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found: the fitting ids, none where nothing fits, several where the count is blind.

    Attributes:
        residual: Of the nearest candidate: tokens counted less ids, the habit aside.
    """

    fits: tuple[Encoded, ...]
    nearest: Encoded
    evidence: Evidence
    residual: int | None


def prove(
    candidates: tuple[Candidate, ...], exchange: Exchange, profile: ModelProfile, habit: Habit
) -> Proof:
    """The ids that the strongest evidence there is allows."""
    known: dict[str, list[int]] = {}
    encoded = tuple(_without_doubles(encode(one, profile, known) for one in candidates))
    counted = count_of(exchange.completion, habit)
    residuals = [residual_of(one, counted, habit) for one in encoded]
    for evidence, find in _FINDERS:
        for one, residual in zip(encoded, residuals, strict=True):
            if residual is not None and (found := find(one, exchange, profile, residual)):
                return Proof((found,), one, evidence, 0)
    fits = tuple(
        one
        for one, residual in zip(encoded, residuals, strict=True)
        if residual == 0 and _is_allowed(one, encoded[0], exchange.completion, habit)
    )
    exact = fits and _thought_fits(fits[0], exchange.completion, habit)
    evidence = Evidence.C if len(fits) != 1 else Evidence.B1 if exact else Evidence.B2
    return Proof(fits, encoded[0], evidence, 0 if fits else residuals[0])


def _without_doubles(encoded: Iterator[Encoded]) -> Iterator[Encoded]:
    seen: set[tuple[int, ...]] = set()
    for one in encoded:
        if one.ids not in seen:
            seen.add(one.ids)
            yield one


def count_of(completion: Completion, habit: Habit) -> int | None:
    """Tokens that the host counted for the whole answer."""
    usage = completion.usage
    if usage is None:
        return None
    apart = 0 if habit.counts_thought else usage.reasoning_tokens or 0
    return usage.completion_tokens + apart


def residual_of(one: Encoded, counted: int | None, habit: Habit) -> int | None:
    """Tokens counted less ids, the host's habit aside."""
    if counted is None:
        return None
    return counted - habit.offset(calls=one.has_calls) - len(one.ids)


def _is_allowed(one: Encoded, nearest: Encoded, completion: Completion, habit: Habit) -> bool:
    """Nothing against it in the count of the thought; where a lone token less is all, its proof.

    A marker left out beside structured calls is that, and a copied thought of one token.
    """
    fits = _thought_fits(one, completion, habit)
    left_out = completion.message.tool_calls and _LEFT_OUT & {*one.candidate.repairs}
    copied = Repair.DUP_REASONING in one.candidate.repairs and len(nearest.ids) == len(one.ids) + 1
    return fits is True if left_out or copied else fits is not False


_LEFT_OUT = frozenset({Repair.NO_THINK_END, Repair.NO_SECTION_END})


def _thought_fits(one: Encoded, completion: Completion, habit: Habit) -> bool | None:
    """Whether the count of the thought is the one that the host's habit makes; `None`: no count."""
    usage = completion.usage
    if habit.thought_count is ThoughtCount.UNRELIABLE or usage is None:
        return None
    if usage.reasoning_tokens is None:
        return None
    marks = one.candidate.segments[: one.candidate.thought]
    with_end = habit.thought_count is ThoughtCount.WITH_END and any(m.is_special for m in marks)
    return usage.reasoning_tokens == one.thought + with_end


def _server_ids(
    one: Encoded, exchange: Exchange, profile: ModelProfile, residual: int
) -> Encoded | None:
    """The server's own ids, where they are as many as counted and say what the text says."""
    given = exchange.completion.token_ids
    if not given:
        return None
    end = profile.special_tokens[profile.answer.end]
    ids = given if given[-1] == end else (*given, end)
    if len(ids) != len(one.ids) + residual:
        return None
    return _as_told(one, ids, profile)


def _as_told(one: Encoded, ids: tuple[int, ...], profile: ModelProfile) -> Encoded | None:
    """These ids if they decode to the candidate's text, white space at the edges aside."""
    if ids == one.ids:
        return one
    try:
        told = load_tokenizer(profile).decode(ids)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return None
    if _BLANK.sub("", told) != _BLANK.sub("", one.text):
        return None
    special = set(all_special_tokens(profile).values())
    places = tuple(place for place, number in enumerate(ids) if number in special)
    segments = tuple(_segments(ids, places, profile))
    candidate = Candidate(segments, 0, one.candidate.repairs)
    return Encoded(candidate, ids, places, one.thought, one.has_calls)


_BLANK = re.compile(r"\s+")


def _segments(
    ids: tuple[int, ...], places: tuple[int, ...], profile: ModelProfile
) -> Iterator[Segment]:
    tokenizer = load_tokenizer(profile)
    start = 0
    for place in (*places, len(ids)):
        if place > start:
            yield Segment(tokenizer.decode(ids[start:place]))
        if place < len(ids):
            yield Segment(tokenizer.decode(ids[place : place + 1]), is_special=True)
        start = place + 1


def _logprob_ids(
    one: Encoded, exchange: Exchange, profile: ModelProfile, residual: int
) -> Encoded | None:
    """Ids by the bytes of every token's log probability."""
    entries = exchange.completion.logprobs
    if not entries or {entry.logprob for entry in entries} <= DUMMIES:
        return None
    tokenizer = load_tokenizer(profile)
    found = [tokenizer.id_of(entry.bytes) if entry.bytes else None for entry in entries]
    ids = tuple(number for number in found if number is not None)
    end = profile.special_tokens[profile.answer.end]
    ids = ids if ids and ids[-1] == end else (*ids, end)
    if None in found or len(ids) != len(one.ids) + residual:
        return None
    told = _as_told(one, ids, profile)
    return told if told is None or told is one else _named(told, Repair.IDS_FROM_LOGPROBS)


def _named(one: Encoded, repair: Repair) -> Encoded:
    repairs = (*one.candidate.repairs, repair)
    candidate = Candidate(one.candidate.segments, one.candidate.thought, repairs)
    return Encoded(candidate, one.ids, one.specials, one.thought, one.has_calls)


def _chunk_ids(
    one: Encoded, exchange: Exchange, profile: ModelProfile, residual: int
) -> Encoded | None:
    """One id a chunk of a real stream; chunks and markers are as many as counted."""
    chunks = exchange.completion.chunks
    if chunks is None or one.has_calls or not came_over_time(exchange):
        return None
    parts = [s for s in one.candidate.segments if not s.is_special]
    thought = sum(chunks.are_thoughts)
    is_mixed = not all(chunks.are_thoughts[:thought])  # blanks in either order are the same text
    if is_mixed or "".join(chunks.texts) != "".join(part.text for part in parts):
        return None
    tokenizer = load_tokenizer(profile)
    single = [tokenizer.encode(text) for text in chunks.texts]
    markers = sum(segment.is_special for segment in one.candidate.segments)
    if any(len(ids) != 1 for ids in single):
        return None
    is_counted = len(single) + markers == len(one.ids) + residual
    if not is_counted or _may_share_characters(chunks.texts, tokenizer):
        return None
    flat = [ids[0] for ids in single]
    ids = tuple(_between_markers(one.candidate, flat[:thought], flat[thought:], profile))
    if ids == one.ids:
        return one
    places = tuple(i for i, number in enumerate(ids) if number in set(_marker_ids(one, profile)))
    again = Encoded(one.candidate, ids, places, thought, one.has_calls)
    return _named(again, Repair.STREAM_TOKENS)


def _may_share_characters(chunks: tuple[str, ...], tokenizer: Tokenizer) -> bool:
    """Whether a token may have begun the character that the chunk after it shows.

    A server that writes whole characters shows the tokens " D8", "A3" as " ", "أ".
    """
    return any(
        tokenizer.id_of(before.encode() + first[:size]) is not None
        for before, after in pairwise(chunks)
        if not after.isascii()
        for first in [after[0].encode()]
        for size in range(1, len(first))
    )


def _marker_ids(one: Encoded, profile: ModelProfile) -> Iterator[int]:
    return (profile.special_tokens[s.text] for s in one.candidate.segments if s.is_special)


def _between_markers(
    candidate: Candidate, thought: list[int], content: list[int], profile: ModelProfile
) -> Iterator[int]:
    for number, segment in enumerate(candidate.segments):
        if segment.is_special:
            yield profile.special_tokens[segment.text]
        else:
            yield from thought if number < candidate.thought else content


def came_over_time(exchange: Exchange) -> bool:
    """Whether a stream came as it was sampled, not as a finished answer."""
    if (arrival := exchange.arrival) is None or arrival.last_at <= arrival.started_at:
        return False
    share = (arrival.last_at - arrival.first_at) / (arrival.last_at - arrival.started_at)
    return share >= _REAL_STREAM


_FINDERS = (
    (Evidence.A1, _server_ids),
    (Evidence.A2, _logprob_ids),
    (Evidence.A3, _chunk_ids),
)
