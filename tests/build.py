"""Records for tests, with every field that a test does not name filled in."""

from decimal import Decimal
from typing import Any

from transforms.chat.habits import Habit, stratum_of
from transforms.chat.habits_file import Habits
from transforms.chat.learning import Learned
from transforms.chat.profile import ModelProfile
from transforms.chat.residuals import Residuals
from transforms.codes import Evidence
from transforms.reconstruct import reconstruct
from transforms.records import (
    Completion,
    Exchange,
    FinishReason,
    Message,
    Prompt,
    Role,
    ToolCall,
    Usage,
    Verdict,
)
from transforms.tokenize import tokenize
from transforms.validate_special_tokens import validate_special_tokens

WEATHER = (
    '{"type":"function","function":{"name":"get_weather","parameters":'
    '{"type":"object","properties":{"city":{"type":"string"}}}}}'
)


def prompt(text: str = "Weather in Paris?", **fields: Any) -> Prompt:
    given: dict[str, Any] = {
        "id": "p1",
        "messages": (Message(role=Role.USER, content=text),),
        "tools": (),
        "source": "prompts.jsonl:1",
        "dataset": "prompts",
    }
    return Prompt(**(given | fields))


def call(identity: str | None = "functions.get_weather:0", name: str = "get_weather",
         arguments: str = '{"city": "Paris"}') -> ToolCall:  # fmt: skip
    return ToolCall(id=identity, name=name, arguments=arguments)


def completion(
    content: str | None = None,
    reasoning: str | None = "",
    calls: tuple[ToolCall, ...] = (),
    tokens: int = 1,
    **fields: Any,
) -> Completion:
    others = fields.pop("other_reasoning", ())
    message = Message(
        role=Role.ASSISTANT,
        content=content,
        reasoning=reasoning,
        other_reasoning=others,
        tool_calls=calls,
    )
    finish = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    given: dict[str, Any] = {
        "message": message,
        "finish_reason": finish,
        "native_finish_reason": finish.value,
        "generation_id": "gen-1",
        "model": "moonshotai/kimi-k2.5-0127",
        "provider": "Chutes",
        "usage": usage(tokens),
    }
    return Completion(**(given | fields))


def usage(tokens: int) -> Usage:
    return Usage(
        prompt_tokens=None,
        completion_tokens=tokens,
        reasoning_tokens=None,
        cost_usd=Decimal("0.01"),
    )


def exchange(answer: Completion, asked: Prompt | None = None) -> Exchange:
    return Exchange(
        prompt=asked or prompt(tools=(WEATHER,) if answer.message.tool_calls else ()),
        completion=answer,
        max_tokens=1000,
        request_sha256="ab" * 32,
    )


def habits(answer: Completion, **fields: Any) -> Habits:
    """What is known of the answer's host: by default that it changes nothing."""
    many = Residuals(((0, 99),))
    learned = Learned(habit=Habit(**fields), text=many, calls=many)
    return Habits(((stratum_of(answer), learned),))


def judge(
    exchange: Exchange, profile: ModelProfile, known: Habits, least: Evidence = Evidence.B2
) -> Verdict:
    """Through the three stages that rebuild and judge."""
    sample = tokenize(reconstruct(exchange, profile, known), profile, known)
    return validate_special_tokens(sample, profile, known, least)
