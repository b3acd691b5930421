"""A message as the OpenAI API writes it: what is sent, rendered, and handed back in rejections."""

from typing import Any

from transforms.records import Message, ToolCall


def write_message(message: Message, *thought: str) -> dict[str, Any]:
    """The message as a JSON object; what it does not have is left out, but for its content.

    `thought`: names that its thought is written under; `reasoning` if none is given.
    """
    written: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.name is not None:
        written["name"] = message.name
    if message.reasoning is not None:
        written |= dict.fromkeys(thought or ("reasoning",), message.reasoning)
    if message.tool_calls:
        written["tool_calls"] = [_write_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    return written


def _write_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
