"""Whom the truth benchmark asks, and which of their answers nobody could put together again."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.engine import Generation
from simulator.faults import FAULTS
from simulator.habits import HABITS
from simulator.tokens import load_kimi
from transforms.chat.candidates import calls_before
from transforms.records import Arrival, Chunks, Completion, Exchange, TokenLogprob

MUCH = 0.003
"""Share of tokens that drift where the evidence should not care."""


@dataclass(frozen=True, slots=True)
class Row:
    """An answer as the client got it, and as it was sampled."""

    exchange: Exchange
    sampled: Generation


def _as_it_came(row: Row) -> Exchange:
    return row.exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Someone who answers.

    Attributes:
        share: Of the rows that a host with a habit gets.
        fault: Of every answer that is judged; the habit is learned from answers without it.
        drift: Share of tokens, where it is not the run's.
        sends: What becomes of an answer on its way that the simulator has no word for.
    """

    name: str
    share: float = 1.0
    habits: tuple[str, ...] = ()
    fault: str | None = None
    tokens_per_chunk: int = 1
    dialect: str = "openrouter"
    drift: float | None = None
    sends: Callable[[Row], Exchange] = _as_it_came


def _replayed(row: Row) -> Exchange:
    """A finished answer as a stream: at once, and cut as the tokenizer cuts its text."""
    arrival, completion = row.exchange.arrival, row.exchange.completion
    if arrival is None or not completion.chunks:
        return row.exchange
    kimi = load_kimi()
    thought, content = (
        tuple(kimi.decode([number]) for number in kimi.encode_plain(text or ""))
        for text in (completion.message.reasoning, completion.message.content)
    )
    are_thoughts = (True,) * len(thought) + (False,) * len(content)
    chunks = Chunks(thought + content, are_thoughts)
    at_once = Arrival(arrival.started_at, arrival.last_at, arrival.last_at)
    return replace(
        row.exchange, arrival=at_once, completion=replace(completion, chunks=chunks)
    )  # fmt: skip


def _with_logprobs(row: Row) -> Exchange:
    """The bytes of every token; vLLM gives them without the end token."""
    tokens = load_kimi().decode_bytes(row.sampled.completion_ids[:-1])
    entries = tuple(TokenLogprob(token, -0.5) for token in tokens)
    return replace(row.exchange, completion=replace(row.exchange.completion, logprobs=entries))


HOSTS: tuple[Host, ...] = (
    Host(name="verbatim"),
    *(Host(name=name, habits=(name,)) for name in HABITS),
    Host(name="two tokens a chunk", tokens_per_chunk=2),
    Host(name="four tokens a chunk", tokens_per_chunk=4),
    Host(name="much drift", drift=MUCH),
    Host(name="much drift, replayed", drift=MUCH, sends=_replayed),
    Host(name="replayed", sends=_replayed),
    Host(name="server ids, vLLM", dialect="vllm", drift=MUCH),
    Host(name="server ids, SGLang", dialect="sglang", drift=MUCH),
    Host(name="logprobs", drift=MUCH, sends=_with_logprobs),
    *(
        Host(name=f"fault {name}", fault=name, share=0.5 if fault.keeps_text else 0.1)
        for name, fault in FAULTS.items()
        if not fault.is_refusal
    ),
)


def why_lost(host: Host, row: Row) -> str | None:
    """Why no one can know what was sampled from what was told; `None` if one can."""
    return next((reason for reason, is_lost in LOST if is_lost(host, row)), None)


def _has(*habits: str) -> Callable[[Host, Row], bool]:
    return lambda host, _row: bool(
        {*host.habits, *([host.fault] if host.fault else ())} & {*habits}
    )


def _is_drifted(_host: Host, row: Row) -> bool:
    kimi = load_kimi()
    texts = (row.sampled.thought, row.sampled.content)
    return any(kimi.encode_plain(kimi.decode(ids)) != ids for ids in texts)


def _proves_nothing(host: Host, row: Row) -> bool:
    """A host with more than 5 % of counts that do not fit is not known by counts."""
    completion = row.exchange.completion
    is_streamed = bool(completion.chunks) and not row.sampled.calls and host.sends is not _replayed
    has_ids = completion.token_ids or completion.logprobs
    return host.drift == MUCH and not has_ids and not (is_streamed and _is_single(row))


def _is_single(row: Row) -> bool:
    """Every token is whole characters, and none could have begun the character after it."""
    kimi = load_kimi()
    tokens = kimi.decode_bytes([*row.sampled.thought, *row.sampled.content])
    if any("\ufffd" in token.decode("utf-8", "replace") for token in tokens):
        return False
    starts = [token.decode()[0].encode() for token in tokens]
    return not any(
        kimi.has(token + start[:size])
        for token, start in zip(tokens, starts[1:], strict=False)
        for size in range(1, len(start))
    )


def _is_counted_anew(host: Host, row: Row) -> bool:
    later = bool(row.sampled.calls) and calls_before(row.exchange.prompt) > 0
    return later and _has("ids_local", "ids_random", "ids_digit")(host, row)


def _is_sorted(host: Host, row: Row) -> bool:
    """Of a host that sorts, no count of a call is to be trusted: another order costs otherwise."""
    return bool(row.sampled.calls) and _has("arguments_sorted")(host, row)


def _cost_the_same(host: Host, row: Row) -> bool:
    """Another way to write the calls has as many tokens, or one more and a marker left out."""
    if not row.sampled.calls or not _has(*_WAYS)(host, row):
        return False
    kimi = load_kimi()
    told = [kimi.decode(call.arguments) for call in row.sampled.calls]
    ways = [_WAYS[host.habits[0]](json.loads(text)) for text in told]
    sampled = sum(len(call.arguments) for call in row.sampled.calls)
    return any(
        list(texts) != told and sum(map(kimi.count, texts)) in {sampled, sampled + 1}
        for texts in itertools.product(*ways)
    )


def _plain(value: object) -> set[str]:
    spaced = json.dumps(value, ensure_ascii=False)
    return {spaced, json.dumps(value, ensure_ascii=False, separators=(",", ":"))}


_WAYS: dict[str, Callable[[object], set[str]]] = {
    "arguments_compact": _plain,
    "arguments_spaced": _plain,
    "arguments_escaped": lambda value: {*_plain(value), json.dumps(value)},
}


def _loses_text(host: Host, _row: Row) -> bool:
    return host.fault is not None and not FAULTS[host.fault].keeps_text


def _leaks_no_call(host: Host, row: Row) -> bool:
    return host.fault == "leaked_tool_tokens" and not row.sampled.calls


def _may_be_closed(host: Host, row: Row) -> bool:
    """A prompt that counts more may hold the end of a thought that no field tells of."""
    is_untold = row.exchange.completion.message.reasoning is None
    return is_untold and _has("prompt_counts_more")(host, row)


DRIFTED = "it was cut otherwise than its text is"
LOST: tuple[tuple[str, Callable[[Host, Row], bool]], ...] = (
    (DRIFTED, _is_drifted),
    ("the host's answers drift too often for counts to prove one", _proves_nothing),
    ("white space was trimmed", _has("trims", "trims_content_start")),
    # Where the prompt is not counted as one less, so that it is the opening of the thought.
    ("one more in every answer may be a token that was stripped", _has("counts_one_more")),
    ("an empty thought, that the prompt may have closed", _may_be_closed),
    ("the end of the thought is gone", _has("think_end_stripped", "answer_in_reasoning")),
    ("the thought, or its end, is gone", _has("thought_lost", "thought_tail_lost")),
    ("the order of keys is gone", _is_sorted),
    ("the index of a later turn's call is gone", _is_counted_anew),
    ("several ways to write the calls cost the same", _cost_the_same),
    ("the ids of calls are gone", _has("empty_tool_id")),
    ("half a character is gone", _has("lone_surrogate")),
    ("another model may have another tokenizer", _has("wrong_model")),
    ("a call was told that was not sampled", _leaks_no_call),
    ("the text is not whole", _loses_text),
    ("nothing was counted", _has("stream_no_finish")),
)
"""Why an answer is not recoverable, and of which that is true; the first that is true is told."""


def completed(completion: Completion, host: Host) -> Completion:
    """An engine does not name itself: the source does."""
    return completion if completion.provider else replace(completion, provider=host.name)
