"""From an answer to its ids: Reconstruct, Tokenize, ValidateSpecialTokens, without Beam.

Expected ids come from published vectors and from tiktoken on the checksummed vocabulary.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import build
from transforms.chat.habits import Habit
from transforms.chat.habits_file import Habits
from transforms.chat.profile import ModelProfile, load_profile
from transforms.chat.special_tokens import find_issues
from transforms.chat.tokens import load_tokenizer
from transforms.codes import Evidence, IssueCode, Repair
from transforms.failures import FailureKind, RecordError
from transforms.reconstruct import reconstruct
from transforms.records import Completion, FinishReason, Message, Role, Sample, ToolCall, Verdict

CALL_TEXT = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>'
)


def judge(answer: Completion, profile: ModelProfile) -> Verdict:
    return build.judge(build.exchange(answer), profile, build.habits(answer))


def sampled(verdict: Verdict) -> tuple[int, ...]:
    return verdict.sample.input_ids[verdict.sample.prompt_length :]


def codes(verdict: Verdict) -> list[IssueCode]:
    return [issue.code for issue in verdict.issues]


def test_one_tool_call_gives_the_seven_markers_once_each(kimi: ModelProfile) -> None:
    thought = " The user wants the weather in Paris. I will call get_weather."
    verdict = judge(build.completion("Let me look.", thought, (build.call(),), tokens=38), kimi)
    special = [number for number in sampled(verdict) if number >= 163584]
    assert special == [163607, 163595, 163597, 163598, 163599, 163596, 163586]
    assert verdict.is_good
    # Published ids of this thought, call and arguments (fixture of the model's vocabulary).
    assert sampled(verdict)[:16] == (
        646, 2742, 11333, 276, 10666, 306, 17374, 13, 374, 748, 2390, 922, 21055, 2800, 13, 163607,
    )  # fmt: skip
    assert sampled(verdict)[-18:] == (
        163595, 163597, 41937, 1150, 21055, 2800, 25, 15, 163598, 8264, 37666, 1289, 414, 113476,
        16934, 163599, 163596, 163586,
    )  # fmt: skip


def test_reproduces_published_responses(kimi: ModelProfile, shared: Callable[[str], Path]) -> None:
    file = shared("tokenizers/kimi-k2.5/response_vectors.json")
    vectors = json.loads(file.read_text("utf-8"))["vectors"]
    answers = [vector for vector in vectors if "<|im_user|>" not in vector["text"]]
    assert len(answers) == 6
    for vector in answers:
        answer = _read_back(vector["text"], len(vector["ids"]))
        verdict = judge(answer, kimi)
        assert list(sampled(verdict)) == vector["ids"], vector["name"]
        assert verdict.sample.text == vector["text"]
        assert verdict.is_good, verdict.issues


def _read_back(text: str, tokens: int) -> Completion:
    """What a faithful host makes of a sampled text."""
    thought, _, rest = text.removesuffix("<|im_end|>").partition("</think>")
    content, _, section = rest.partition("<|tool_calls_section_begin|>")
    calls = []
    for part in section.split("<|tool_call_begin|>")[1:]:
        identity, _, rest = part.partition("<|tool_call_argument_begin|>")
        name = identity.removeprefix("functions.").rpartition(":")[0]
        calls.append(
            ToolCall(id=identity, name=name, arguments=rest.partition("<|tool_call_end|>")[0])
        )
    return build.completion(content or None, thought, tuple(calls), tokens=tokens)


def test_the_prompt_ends_in_the_prefill(kimi: ModelProfile) -> None:
    sample = judge(build.completion("4", tokens=3), kimi).sample
    # "<|im_user|>user<|im_middle|>…<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    assert sample.input_ids[:3] == (163587, 2482, 163601)
    assert sample.input_ids[sample.prompt_length - 5 : sample.prompt_length] == (
        163586, 163588, 69702, 163601, 163606,
    )  # fmt: skip


def test_a_section_in_the_content_is_read_byte_for_byte(kimi: ModelProfile) -> None:
    structured = judge(build.completion("Look:", " Hm.", (build.call(),), tokens=24), kimi)
    raw = judge(build.completion(f"Look:{CALL_TEXT}", " Hm.", tokens=24), kimi)
    assert sampled(raw) == sampled(structured)
    assert raw.is_good
    assert raw.sample.repairs == (Repair.SECTION_FROM_TEXT,)


def test_json_that_the_model_wrote_wrong_stays_as_it_is(kimi: ModelProfile) -> None:
    broken = '{"city": "Paris",, é\t}'
    answer = build.completion(None, "a", (build.call(arguments=broken),), tokens=26)
    assert broken in judge(answer, kimi).sample.text


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (build.completion("x", "y", tokens=9), IssueCode.COUNT_MISMATCH),
        (build.completion("x", "y", usage=None), IssueCode.USAGE_MISSING),
        (build.completion(None, "all of it"), IssueCode.EMPTY_ANSWER),
        (build.completion("caf\ufffd", "y"), IssueCode.REPLACEMENT_CHAR),
        (build.completion("y", "caf\ud83d"), IssueCode.REPLACEMENT_CHAR),
        (build.completion("a</think>b", "y"), IssueCode.SPECIAL_TEXT_IN_OUTPUT),
        (build.completion("a", "y<|im_end|>"), IssueCode.UNEXPECTED_EOS),
        (build.completion(None, "y", (build.call("get_weather:0"),)), IssueCode.TOOL_ID_AMBIGUOUS),
        (build.completion(None, "y", (build.call(None),)), IssueCode.TOOL_ID_AMBIGUOUS),
        (build.completion(None, "y", (build.call(name="f"),)), IssueCode.TOOL_ID_AMBIGUOUS),
        (build.completion(CALL_TEXT[:-20], "y"), IssueCode.TOOL_SECTION_PARTIAL),
        (build.completion(CALL_TEXT + " done", "y"), IssueCode.TEXT_AFTER_SECTION),
        (
            build.completion(CALL_TEXT.replace("Paris", "Rome"), "y", (build.call(),)),
            IssueCode.SECTION_LAYOUT_AMBIGUOUS,
        ),
        (
            build.completion("x", "y", finish_reason=None, native_finish_reason="abort"),
            IssueCode.FINISH_UNKNOWN,
        ),
        (build.completion("x", "y", native_finish_reason="length"), IssueCode.LENGTH_TRUNCATED),
        (build.completion("x", "y", native_finish_reason="MAX_TOKENS"), IssueCode.LENGTH_TRUNCATED),
        (build.completion("x", "y", tokens=1000), IssueCode.LENGTH_TRUNCATED),
        (build.completion("x", "y", native_finish_reason="SAFETY"), IssueCode.FINISH_UNKNOWN),
        (build.completion("x", "y", native_finish_reason="error"), IssueCode.FINISH_UNKNOWN),
        (build.completion("x", None, tokens=3), IssueCode.REASONING_MISSING),
        (build.completion("x", "[REDACTED]"), IssueCode.REASONING_ENCRYPTED),
        (
            build.completion("x", "y", other_reasoning=("[reasoning.encrypted]",)),
            IssueCode.REASONING_ENCRYPTED,
        ),
        (build.completion("x", "y", other_reasoning=("z",)), IssueCode.REASONING_FIELDS_DISAGREE),
        (build.completion("x", "y", tokens=4, provider=None), IssueCode.PROVIDER_UNKNOWN),
        (
            build.completion(None, "y", (build.call("functions.get_weather:1"),)),
            IssueCode.TOOL_ID_INDEX_AMBIGUOUS,
        ),
        (
            build.completion(None, "y", (build.call(), build.call())),
            IssueCode.TOOL_ID_INDEX_AMBIGUOUS,
        ),
        (
            build.completion(None, "y", (build.call("functions.get_weather:٠"),)),
            IssueCode.TOOL_ID_AMBIGUOUS,
        ),
        (build.completion(None, "y", (build.call(arguments=""),)), IssueCode.TOOL_ARGS_LOST),
    ],
)
def test_each_fault_of_an_answer_has_its_code(
    kimi: ModelProfile, answer: Completion, code: IssueCode
) -> None:
    assert codes(build.judge(build.exchange(answer), kimi, Habits()))[0] is code


def test_errors_that_cancel_in_the_count_are_not_good(kimi: ModelProfile) -> None:
    # `functions.` is missing (one token) and the end token is not counted (one token).
    exact = judge(build.completion(None, "y", (build.call(),), tokens=1), kimi)
    bare = build.completion(
        None, "y", (build.call("get_weather:0"),), tokens=len(sampled(exact)) - 1
    )
    verdict = build.judge(build.exchange(bare), kimi, Habits())
    assert not verdict.is_good


def test_an_index_counts_over_the_conversation(kimi: ModelProfile) -> None:
    asked = build.prompt(
        messages=(
            Message(role=Role.USER, content="Weather in Paris and Rome?"),
            Message(role=Role.ASSISTANT, tool_calls=(build.call(),)),
            Message(role=Role.TOOL, content="5", tool_call_id="functions.get_weather:0"),
        )
    )
    for index, code in ((0, IssueCode.TOOL_ID_INDEX_AMBIGUOUS), (1, None)):
        call = build.call(f"functions.get_weather:{index}")
        exchange = build.exchange(build.completion(None, "y", (call,), tokens=20), asked)
        found = [issue.code for issue in reconstruct(exchange, kimi, Habits()).issues]
        assert found == [IssueCode.UNREQUESTED_TOOL_PARSE, *([code] if code else [])]


def test_truncated_answers_get_no_end_token(kimi: ModelProfile) -> None:
    in_thought = judge(
        build.completion(None, " A short greeting", tokens=3, finish_reason=FinishReason.LENGTH),
        kimi,
    )
    assert sampled(in_thought) == (401, 4258, 63853)
    assert in_thought.sample.residual == 0
    in_content = judge(
        build.completion("4", "y", tokens=3, finish_reason=FinishReason.LENGTH), kimi
    )
    assert sampled(in_content) == (88, 163607, 19)
    assert codes(in_content)[0] is IssueCode.LENGTH_TRUNCATED


def test_a_model_without_markers_has_only_its_end_token(smollm2: ModelProfile) -> None:
    verdict = judge(build.completion("The capital of France is Paris.", tokens=8), smollm2)
    assert sampled(verdict) == (504, 3575, 282, 4649, 314, 7042, 30, 2)
    assert verdict.is_good
    thought = judge(build.completion("Paris.", "Hm", tokens=8), smollm2)
    assert IssueCode.MODE_MISMATCH in codes(thought)


def test_a_call_without_a_grammar_for_it_fails(smollm2: ModelProfile) -> None:
    with pytest.raises(RecordError) as caught:
        reconstruct(build.exchange(build.completion(None, "", (build.call(),))), smollm2, Habits())
    assert caught.value.kind is FailureKind.UNEXPECTED_TOOL_CALL


def test_a_prompt_that_the_template_refuses_fails(kimi: ModelProfile) -> None:
    tool = '{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"x":1}}}}}'
    asked = build.prompt(tools=(tool,))
    with pytest.raises(RecordError) as caught:
        reconstruct(build.exchange(build.completion("x"), asked), kimi, Habits())
    assert caught.value.kind is FailureKind.TEMPLATE_ERROR


def test_evidence_below_what_is_asked_for_is_bad(kimi: ModelProfile) -> None:
    answer = build.completion("4", tokens=3)
    known = build.habits(answer)
    assert build.judge(build.exchange(answer), kimi, known).is_good
    strict = build.judge(build.exchange(answer), kimi, known, Evidence.B1)
    assert codes(strict) == [IssueCode.EVIDENCE_TOO_WEAK]


_PIECES = st.sampled_from(
    ["</think>", "<|im_end|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "a", " ", "é",
     "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>", "\ud83d",
     "functions.f:0", "{}", "\n", "漢", "\ufffd"]
)  # fmt: skip
_TEXTS = st.none() | st.lists(_PIECES, max_size=8).map("".join)


@settings(max_examples=200)
@given(
    content=_TEXTS,
    reasoning=_TEXTS,
    arguments=_TEXTS,
    finish=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    tokens=st.integers(1, 40),
)
def test_whatever_comes_is_judged_and_only_whole_grammar_is_good(
    content: str | None,
    reasoning: str | None,
    arguments: str | None,
    finish: FinishReason,
    tokens: int,
) -> None:
    profile = load_profile("kimi-k2.5")
    calls = () if arguments is None else (build.call(arguments=arguments),)
    verdict = judge(
        build.completion(content, reasoning, calls, tokens=tokens, finish_reason=finish), profile
    )
    assert "".join(_literals(verdict.sample)) == verdict.sample.text
    if verdict.is_good:
        assert sampled(verdict)[-1] == 163586
        assert sampled(verdict).count(163586) == 1
        assert sampled(verdict).count(163607) == 1
        assert len(sampled(verdict)) == tokens


def _literals(sample: Sample) -> list[str]:
    """Each sampled part decoded by itself."""
    tokenizer = load_tokenizer(load_profile("kimi-k2.5"))
    cuts = [sample.prompt_length, *[p for s in sample.special_positions for p in (s, s + 1)]]
    cuts.append(len(sample.input_ids))
    return [tokenizer.decode(sample.input_ids[a:b]) for a, b in pairwise(cuts)]


_IDS = st.sampled_from([88, 163586, 163589, *range(163595, 163600), 163607])


@given(
    ids=st.lists(_IDS, min_size=1, max_size=12),
    positions=st.sets(st.integers(0, 20)),
)
def test_find_issues_never_raises(ids: list[int], positions: set[int]) -> None:
    profile = load_profile("kimi-k2.5")
    sample = Sample(
        exchange=build.exchange(build.completion("x", tokens=len(ids))),
        input_ids=(163587, 163606, *ids),
        prompt_length=2,
        special_positions=tuple(sorted(positions)),
        text="x",
        residual=0,
        evidence=Evidence.B2,
        repairs=(),
        issues=(),
    )
    assert find_issues(sample, profile, Habit()) is not None
