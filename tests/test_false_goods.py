"""Ways in which a count fits and the ids are others: found by reading, none may be called good.

Hosts are learned from the answers that are judged, as a run does it.
"""

from collections import Counter
from dataclasses import replace

import pytest

from tests import build
from transforms.chat.habits import Ids, ThoughtCount, stratum_of
from transforms.chat.habits_file import Habits
from transforms.chat.learning import learn_all
from transforms.chat.profile import ModelProfile
from transforms.chat.render import render_prompt
from transforms.chat.statistic import Key, Statistic
from transforms.chat.tokens import load_tokenizer
from transforms.observe import observe
from transforms.records import Arrival, Chunks, Completion, Exchange, Verdict

WORDS = ("Oi", "Olá", "12", "Zürich", "Yes", "Toyota", "Hm", "é", "Xq", "7 of", "Ja", "Nö")


def counted(profile: ModelProfile, *texts: str) -> int:
    tokenizer = load_tokenizer(profile)
    return sum(len(tokenizer.encode(text)) for text in texts)


def prompt_tokens(profile: ModelProfile) -> int:
    return len(render_prompt(build.prompt(), profile))


def judge_all(profile: ModelProfile, exchanges: list[Exchange]) -> list[Verdict]:
    seen: Counter[tuple[Key, int]] = Counter()
    for exchange in exchanges:
        for _, statistic in observe(exchange, profile):
            seen.update(statistic.counter())
    stratum = stratum_of(exchanges[0].completion)
    known = Habits(tuple(learn_all({stratum: Statistic.of(seen)}).items()))
    return [build.judge(exchange, profile, known) for exchange in exchanges]


def with_usage(answer: Completion, tokens: int, prompt: int | None) -> Completion:
    return replace(answer, usage=replace(build.usage(tokens), prompt_tokens=prompt))


def test_a_host_that_never_thinks_has_no_empty_thoughts(kimi: ModelProfile) -> None:
    """It closes the thought in the prompt, one token longer, and counts no end of it."""
    exchanges = []
    for number in range(40):
        text = f"{WORDS[number % 12]} {number}"
        tokenizer = load_tokenizer(kimi)
        pieces = [tokenizer.decode([one]) for one in tokenizer.encode(text)]
        answer = replace(
            with_usage(
                build.completion(text, None), counted(kimi, text) + 1, prompt_tokens(kimi) + 1
            ),
            chunks=Chunks(tuple(pieces), (False,) * len(pieces)),
        )
        exchanges.append(replace(build.exchange(answer), arrival=Arrival(0.0, 1.0, 9.0)))
    assert not [verdict for verdict in judge_all(kimi, exchanges) if verdict.is_good]


@pytest.mark.parametrize("ids", [Ids.BARE, Ids.RENEWED])
def test_an_id_that_the_model_wrote_bare_is_no_open_section(kimi: ModelProfile, ids: Ids) -> None:
    """`functions.` was not sampled, one token less: so is a section without its end."""
    identity = "get_weather:0" if ids is Ids.BARE else "call_1"
    call = build.call(identity)
    sampled = counted(kimi, " Hm.", "get_weather:0", call.arguments) + 7
    answer = with_usage(build.completion("", " Hm.", (call,)), sampled, None)
    usage = replace(build.usage(sampled), reasoning_tokens=counted(kimi, " Hm.") + 1)
    for told in (answer, replace(answer, usage=usage)):
        known = build.habits(told, ids=ids, thought_count=ThoughtCount.WITH_END)
        assert not build.judge(build.exchange(told), kimi, known).is_good


def test_a_marker_that_is_left_out_needs_the_count_of_the_thought(kimi: ModelProfile) -> None:
    """A lone count of one less is a fault of the host as well."""
    sampled = counted(kimi, " Hm.", "Look:", "functions.get_weather:0", '{"city": "Paris"}') + 6
    answer = build.completion("Look:", " Hm.", (build.call(),), tokens=sampled)
    assert not build.judge(build.exchange(answer), kimi, build.habits(answer)).is_good


def test_one_more_in_every_answer_may_be_a_token_that_is_stripped(kimi: ModelProfile) -> None:
    """The opening of the thought, counted as output, is missing in the count of the prompt."""
    for added, is_good in ((0, False), (-1, True)):
        exchanges = []
        for number in range(40):
            text = f" {WORDS[number % 12]} {number}"
            tokens = counted(kimi, " Hm.", text) + 3
            answer = with_usage(build.completion(text, " Hm."), tokens, prompt_tokens(kimi) + added)
            exchanges.append(build.exchange(answer))
        assert {verdict.is_good for verdict in judge_all(kimi, exchanges)} == {is_good}


def test_a_line_feed_in_every_answer_is_no_uncounted_end(kimi: ModelProfile) -> None:
    exchanges = []
    for number in range(40):
        text = f"{WORDS[number % 12]} {number}"
        tokens = counted(kimi, " Hm.", text) + 2
        answer = with_usage(build.completion(f"\n{text}", " Hm."), tokens, prompt_tokens(kimi))
        exchanges.append(build.exchange(answer))
    good = [verdict for verdict in judge_all(kimi, exchanges) if verdict.is_good]
    assert not [verdict for verdict in good if "</think>\n" in verdict.sample.text]


def test_a_short_thought_that_the_answer_begins_with_was_not_told_twice(kimi: ModelProfile) -> None:
    """One token less is no proof that the answer's first word is a copy."""
    answer = build.completion("Yes it is", "Yes", tokens=counted(kimi, "Yes", "Yes it is") + 1)
    assert not build.judge(build.exchange(answer), kimi, build.habits(answer)).is_good
