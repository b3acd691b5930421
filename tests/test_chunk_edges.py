"""Streams of one token a chunk: when their chunks are the sampled ids, when they may not be."""

from dataclasses import replace

import pytest

from simulator.tokens import SPECIAL, load_kimi
from tests import build
from transforms.chat.profile import ModelProfile
from transforms.codes import Evidence
from transforms.records import Arrival, Chunks, Verdict

OVER_TIME = Arrival(0.0, 0.1, 2.0)
AT_ONCE = Arrival(0.0, 2.0, 2.0)


def judge(chunks: list[str], arrival: Arrival, kimi: ModelProfile, counted: int) -> Verdict:
    """A thought of one token, then content in these chunks."""
    shown = Chunks((" OK", *chunks), (True, *[False] * len(chunks)))
    answer = build.completion("".join(chunks), " OK", tokens=counted, chunks=shown)
    exchange = replace(build.exchange(answer), arrival=arrival)
    return build.judge(exchange, kimi, build.habits(answer, streams_tokens=True))


@pytest.mark.parametrize(
    ("chunks", "arrival", "evidence"),
    [
        (["H", "ello", " there"], OVER_TIME, Evidence.A3),  # not the tokenizer's own cut
        (["Hello", " there"], OVER_TIME, Evidence.A3),
        (["Hello", " there"], AT_ONCE, Evidence.B2),  # a finished answer, replayed
        (["Go", ".", " ", "\u0623", "\u0648\u0644"], OVER_TIME, Evidence.B2),  # or " D8", "A3"
    ],
)
def test_chunks_are_tokens_only_where_nothing_else_can_be(
    chunks: list[str], arrival: Arrival, evidence: Evidence, kimi: ModelProfile
) -> None:
    tokens = load_kimi()
    ids = [number for text in chunks for number in tokens.encode_plain(text)]
    assert len(ids) == len(chunks)
    counted = len(ids) + 3
    verdict = judge(chunks, arrival, kimi, counted)
    if evidence is Evidence.A3:
        sampled = [*tokens.encode_plain(" OK"), SPECIAL["</think>"], *ids, SPECIAL["<|im_end|>"]]
        assert list(verdict.sample.input_ids[verdict.sample.prompt_length :]) == sampled
        assert verdict.hidden_drift == 0.0
    else:
        assert verdict.evidence > Evidence.A3


def test_a_thought_that_comes_after_content_shows_no_order(kimi: ModelProfile) -> None:
    """Blanks in either order are the same text: each would be taken for the other's token."""
    shown = Chunks((" ", "  ", "OK"), (False, True, False))
    answer = build.completion(" OK", "  ", tokens=5, chunks=shown)
    exchange = replace(build.exchange(answer), arrival=OVER_TIME)
    verdict = build.judge(exchange, kimi, build.habits(answer, streams_tokens=True))
    assert verdict.evidence > Evidence.A3
