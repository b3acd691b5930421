"""A passage that stands four times or more in a row, against a regular expression of it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import build
from transforms.chat.flags import find_flags, repeats
from transforms.chat.profile import ModelProfile
from transforms.codes import Flag

_ROW = re.compile(r"(.{20,200}?)\1{3,}", re.DOTALL)
"""Plain, and 300 times as slow."""

_TEXTS = st.text("ab\n", max_size=60)
_ROWS = st.tuples(st.text("abc", min_size=1, max_size=210), st.integers(2, 6), st.integers(0, 30))


@given(_TEXTS, _ROWS, _TEXTS)
def test_rows_are_those_of_the_expression(
    before: str, row: tuple[str, int, int], after: str
) -> None:
    passage, times, cut = row
    text = before + (passage * times)[: len(passage) * times - cut] + after
    assert repeats(text) == (_ROW.search(text) is not None)


@pytest.mark.parametrize("field", ["content", "reasoning"])
def test_an_answer_that_goes_in_circles_is_flagged(field: str, kimi: ModelProfile) -> None:
    circles = "Let me think about it once more. " * 4
    texts = {"content": "Fine.", "reasoning": " Hm."} | {field: f"Well. {circles}"}
    answer = build.completion(texts["content"], texts["reasoning"])
    assert Flag.REPEATED_TEXT in find_flags(build.exchange(answer), kimi)
    whole = build.completion("Fine.", " Let me think about it once more. Let me think anew.")
    assert Flag.REPEATED_TEXT not in find_flags(build.exchange(whole), kimi)
