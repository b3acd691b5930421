"""Records for tests, with every field that a test does not name filled in."""

from decimal import Decimal
from typing import Any

from transforms.records import (
    Completion,
    Exchange,
    FinishReason,
    Message,
    Prompt,
    Role,
    ToolCall,
    Usage,
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
        prompt_tokens=40, completion_tokens=tokens, reasoning_tokens=None, cost_usd=Decimal("0.01")
    )


def exchange(answer: Completion, asked: Prompt | None = None) -> Exchange:
    return Exchange(
        prompt=asked or prompt(),
        completion=answer,
        max_tokens=1000,
        request_sha256="ab" * 32,
    )
