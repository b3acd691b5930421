"""What hosts' counters make known of them, and what they leave open."""

from collections import Counter

import pytest

from transforms.chat.learning import learn
from transforms.chat.statistic import Key, Statistic


def learned_from(*seen: tuple[Key, int, int]) -> Statistic:
    return Statistic.of(Counter({(key, value): count for key, value, count in seen}))


DRIFTING: tuple[tuple[Key, int, int], ...] = (
    (("answers", "text"), 0, 20),
    (("text", "verbatim"), 0, 15),
    (("text", "verbatim"), 1, 5),
)
"""A quarter of the answers is cut otherwise than their text."""


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({0: 8, 1: 4, 3: 2}, True),  # characters of several tokens come as one chunk
        ({40: 1, 61: 1, 17: 1, 0: 1}, False),  # several tokens a chunk
        ({0: 2}, False),  # too few to know
        ({-1: 9, 0: 1}, False),  # another offset than the texts have
    ],
)
def test_streams_tell_their_tokens_however_often_the_model_drifts(
    counts: dict[int, int], expected: bool
) -> None:
    streams = [(("stream",), value, count) for value, count in counts.items()]
    learned = learn(learned_from(*DRIFTING, *streams))
    assert not learned.knows_text
    assert learned.habit.streams_tokens is expected


@pytest.mark.parametrize(
    ("told", "is_sure"),
    [
        ([("shorter", 0, 5)], True),
        ([("longer", 0, 3), ("shorter", 0, 2)], True),
        ([("shorter", 0, 4)], False),  # half of the model's texts may begin with a blank
        ([("shorter", 0, 5), ("shorter", -1, 1)], False),  # a blank was trimmed
        ([("longer", 0, 5), ("longer", 1, 1)], False),
        ([("shorter", 0, 5), ("shorter", 1, 3)], True),  # drift makes an answer longer
    ],
)
def test_a_trimmed_blank_shows_where_it_changes_the_count(
    told: list[tuple[str, int, int]], is_sure: bool
) -> None:
    seen = [(("tells", "content", "text", way), value, count) for way, value, count in told]
    learned = learn(learned_from(*DRIFTING, *seen))
    assert ("content" not in learned.habit.unsure_starts) is is_sure


@pytest.mark.parametrize(("shown", "expected"), [((9, 0), True), ((1, 8), False)])
def test_a_host_that_never_shows_content_strips_the_end_of_the_thought(
    shown: tuple[int, int], expected: bool
) -> None:
    only = [(("only_thought",), 1, shown[0]), (("only_thought",), 0, shown[1])]
    found = learn(learned_from(*DRIFTING, *[one for one in only if one[2]]))
    assert found.habit.strips_thought_end is expected
