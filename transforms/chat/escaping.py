"""Special text in prompts, made harmless before it is sent."""

import re
from dataclasses import replace

from transforms.chat.profile import ModelProfile, special_literals
from transforms.records import Message, Prompt, ToolCall


def escape_special_text(prompt: Prompt, profile: ModelProfile) -> Prompt:
    """The prompt with a blank after the first character of each special token's literal.

    `<|im_end|>` becomes `< |im_end|>`, which no server reads as the token: what is sent, rendered
    and written to the row is the same text.
    """
    literals = special_literals(profile)
    return replace(
        prompt,
        messages=tuple(_escape_message(message, literals) for message in prompt.messages),
        tools=tuple(literals.sub(_apart, tool) for tool in prompt.tools),
    )


def _apart(found: re.Match[str]) -> str:
    return f"{found[0][0]} {found[0][1:]}"


def _escape(text: str | None, literals: re.Pattern[str]) -> str | None:
    return None if text is None else literals.sub(_apart, text)


def _escape_message(message: Message, literals: re.Pattern[str]) -> Message:
    return replace(
        message,
        content=_escape(message.content, literals),
        reasoning=_escape(message.reasoning, literals),
        tool_calls=tuple(_escape_call(call, literals) for call in message.tool_calls),
        tool_call_id=_escape(message.tool_call_id, literals),
        name=_escape(message.name, literals),
    )


def _escape_call(call: ToolCall, literals: re.Pattern[str]) -> ToolCall:
    return ToolCall(
        id=_escape(call.id, literals),
        name=literals.sub(_apart, call.name),
        arguments=literals.sub(_apart, call.arguments),
    )
