"""The fault cases' own words as what the pipeline knows: one mapping for all of them.

The cases count every prompt as 40 tokens, 41 with thinking off (a placeholder): what their host
adds to a prompt is learned as an offset, as from a real host.
"""

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.scripted import Reply, Script, serve
from transforms.call_openrouter import call_openrouter
from transforms.chat.candidates import write_candidates
from transforms.chat.habits import (
    GUESS,
    Arguments,
    Blanks,
    Habit,
    Ids,
    ThoughtCount,
    stratum_of,
)
from transforms.chat.habits_file import Habits
from transforms.chat.learning import Learned
from transforms.chat.profile import ModelProfile, load_profile
from transforms.chat.rejects import find_rejects, is_truncated
from transforms.chat.render import render_prompt
from transforms.chat.residuals import Residuals
from transforms.chat.settings import thinking_is_off
from transforms.chat.view import Asked
from transforms.codes import Evidence
from transforms.failures import Failure, FailureKind
from transforms.openrouter.call_config import CallConfig
from transforms.openrouter.client import OpenRouterClient
from transforms.openrouter.sender import Wire
from transforms.openrouter.source import SOURCES
from transforms.openrouter.wire import Sampling
from transforms.prompts.shapes import read_prompt
from transforms.reconstruct import reconstruct
from transforms.records import Exchange, Prompt, Verdict
from transforms.tokenize import tokenize
from transforms.validate_special_tokens import validate_special_tokens

HOST = "Host"
WORDS: dict[str, dict[str, Any]] = {
    "verbatim": {},
    "vllm_spaces": {"blanks": Blanks.AROUND_MARKERS},
    "strip": {"blanks": Blanks.TRIMMED},
    "skip_special_tokens": {"strips_thought_end": True},
    "tool_markers_stripped": {"strips_markers": True},
    "eos_counted": {},
    "eos_not_counted": {"text_offset": -1, "calls_offset": -1},
    "eos_printed": {},
    "rt=think+1": {"thought_count": ThoughtCount.WITH_END},
    "rt_unreliable": {"thought_count": ThoughtCount.UNRELIABLE},
    "ids_rebuilt": {"ids": Ids.RENUMBERED},
    "ids_rebuilt?": {"ids": Ids.RENUMBERED},
    "ids_rewritten": {"ids": Ids.RENEWED},
    "ids_canonicalised": {"ids": Ids.RENUMBERED},
    "args_compacted": {"arguments": Arguments.COMPACTED},
    "args_respaced": {"arguments": Arguments.SPACED},
    "args_ensure_ascii": {"arguments": Arguments.ESCAPED},
    "args_double_encoded": {"arguments": Arguments.DOUBLY_ENCODED},
    "args_reserialised_sorted": {"arguments": Arguments.SORTED},
    "thinking_off": {},
    "template prefilled <think>": {"prefills": True},
    "no_prefill": {"prefills": False},
    "usage_disjoint": {"counts_thought": False},
    "usage_from_text": {"counts_text": True},
    "dynamo": {"joins_around_calls": True},
    "unknown": {},
}
"""Word of a case's `profile` -> what of the habit it sets; `unknown` is a host never seen."""

PROFILES = {
    "moonshotai/kimi-k2.5": "kimi-k2.5",
    "moonshotai/kimi-k2.6": "kimi-k2.6",
    "moonshotai/kimi-k2-thinking": "kimi-k2-thinking",
    "moonshotai/kimi-k2-0905": "kimi-k2-0905",
    "moonshotai/kimi-k2": "kimi-k2-0905",
    "moonshotai/kimi-k3": "kimi-k3",
    "deepseek/": "deepseek-v3.2",
    "qwen/": "qwen3",
    "z-ai/": "glm-4.5",
    "minimax/": "minimax-m2",
    "openai/gpt-oss": "gpt-oss",
}
"""Model, or how its name begins -> profile; the longest fits best."""

FAMILIES = {
    "answer": "CONTENT_DROPPED EMPTY_ANSWER FINISH_UNKNOWN LENGTH_TRUNCATED RUN_ON_AFTER_EOS "
    "STOP_STRING STREAM_ASSEMBLY STREAM_INCOMPLETE UNEXPECTED_EOS UPSTREAM_ERROR",
    "reasoning": "MODE_MISMATCH REASONING_ENCRYPTED REASONING_FIELDS_DISAGREE REASONING_MISSING "
    "REASONING_SUMMARY REASONING_TAIL_DROPPED THINK_END_MISSING THINK_END_POSITION_UNKNOWN "
    "THINK_END_STRIPPED",
    "tools": "ARGS_ORDER_UNKNOWN FORCED_TOOL_CHOICE SECTION_LAYOUT_AMBIGUOUS TEXT_AFTER_SECTION "
    "TOOL_ARGS_LOST TOOL_ARGS_TRUNCATED TOOL_CALL_DROPPED TOOL_ID_AMBIGUOUS "
    "TOOL_ID_INDEX_AMBIGUOUS TOOL_SECTION_PARTIAL UNREQUESTED_TOOL_PARSE",
    "text": "LEADING_SPACE_UNKNOWN MARKERS_STRIPPED RENDER_NOT_INVERTIBLE REPLACEMENT_CHAR "
    "SPECIAL_TOKEN_MISPLACED RESPONSE_REWRITTEN SPECIAL_TEXT_IN_OUTPUT "
    "WHITESPACE_TRIMMED_AMBIGUOUS",
    "evidence": "AMBIGUOUS_CANDIDATES COUNT_MISMATCH LOGPROBS_GARBAGE PROMPT_MISMATCH "
    "PROMPT_SPECIAL_TEXT PROVIDER_UNKNOWN USAGE_MISSING USAGE_NOT_ENGINE USAGE_UNUSABLE",
}
"""The groups of the cases' documentation."""
FAMILY_OF_FAILURE = {
    FailureKind.PROMPT_SPECIAL_TEXT: "evidence",
    FailureKind.INVALID_RESPONSE: "answer",
    FailureKind.PROVIDER_UNAVAILABLE: "answer",
    FailureKind.UNEXPECTED_TOOL_CALL: "tools",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the pipeline made of a case."""

    verdict: str
    family: str | None
    ids: tuple[int, ...] | None
    detail: str


def family_of(code: str) -> str:
    return next(name for name, codes in FAMILIES.items() if code in codes.split())


def run_case(request: dict[str, Any], response: Any, words: str, folder: Path) -> Outcome:
    """A request and the bytes of its answer, through every stage."""
    profile = load_profile(profile_of(response["model"]))
    prompt = read_prompt({key: request[key] for key in ("messages", "tools") if key in request},
                         "cases:1", "cases")  # fmt: skip
    sampling = _sampling(request, response["model"])
    exchange = asyncio.run(_ask(prompt, sampling, profile, response, folder))
    if isinstance(exchange, Failure):
        detail = f"{exchange.kind}: {exchange.detail}"
        return Outcome("bad", FAMILY_OF_FAILURE[exchange.kind], None, detail)
    if profile.tokenizer.kind == "unknown":
        return _unproved(exchange, profile)
    habits = _habits(words, exchange, profile)
    rendering = reconstruct(exchange, profile, habits)
    sample = tokenize(rendering, profile, habits)
    return _outcome(validate_special_tokens(sample, profile, habits, Evidence.B2))


def profile_of(model: str) -> str:
    return PROFILES[max((name for name in PROFILES if model.startswith(name)), key=len)]


def _unproved(exchange: Exchange, profile: ModelProfile) -> Outcome:
    """Of a model without a tokenizer nothing is good; the text alone may say why not."""
    asked = Asked(exchange, profile, GUESS)
    _, found = write_candidates(asked, cut=is_truncated(exchange))
    issues = (*find_rejects(asked), *found)
    if not issues:
        return Outcome("bad", "evidence", None, "the model's tokenizer is not known")
    told = "; ".join(f"{issue.code}: {issue.detail}" for issue in issues)
    return Outcome("bad", family_of(issues[0].code), None, told)


def _outcome(verdict: Verdict) -> Outcome:
    sample = verdict.sample
    if not verdict.is_good:
        told = "; ".join(f"{issue.code}: {issue.detail}" for issue in verdict.issues)
        return Outcome("bad", family_of(verdict.issues[0].code), None, told)
    ids = sample.input_ids[sample.prompt_length :]
    told = ", ".join((verdict.evidence, *sample.repairs))
    return Outcome("repairable" if sample.repairs else "good", None, ids, told)


def _sampling(request: dict[str, Any], model: str) -> Sampling:
    extra = {key: value for key, value in request.items() if key not in _OWNED}
    return Sampling(model=model, max_tokens=request["max_tokens"], extra=json.dumps(extra))


_OWNED = {"messages", "tools", "model", "max_tokens"}


async def _ask(
    prompt: Prompt, sampling: Sampling, profile: ModelProfile, response: Any, folder: Path
) -> Exchange | Failure:
    body = json.dumps({"provider": HOST, "id": "gen-1", **response}).encode()
    async with serve(Script([Reply(body=body)])) as script:
        wire = Wire(base_url=script.base_url, api_key="none", model=sampling.model,
                    max_tokens=sampling.max_tokens, source=SOURCES["openrouter"])  # fmt: skip
        config = CallConfig(wire=wire, store=str(folder), run_id="run", max_in_flight=1)
        client = OpenRouterClient(config, sleep=_no_wait)
        try:
            return await call_openrouter(prompt, client, sampling, profile)
        finally:
            await client.close()


async def _no_wait(_seconds: float) -> None:
    return


def _habits(words: str, exchange: Exchange, profile: ModelProfile) -> Habits:
    """What was learned of the host; of an unknown one nothing."""
    fields: dict[str, Any] = {}
    for word in words.split(","):
        fields |= WORDS[word.strip()]
    known = words != "unknown"
    habit = Habit(**fields) if known else GUESS
    off = thinking_is_off(exchange.settings)
    rendered = len(render_prompt(exchange.prompt, profile, thinks=not off)) - (not habit.prefills)
    added = 40 + off - rendered
    habit = replace(habit, prompt_offset=added, tools_prompt_offset=added)
    many = Residuals(((0, 99),))
    learned = Learned(habit=habit, text=many, calls=many, knows_text=known, knows_calls=known)
    return Habits(((stratum_of(exchange.completion), learned),))
