"""A stream of server-sent events, put together to the object that a whole answer would be."""

from typing import Any

import msgspec


def assemble_events(body: bytes) -> dict[str, Any]:
    """Joins the deltas of all chunks; comments (`: …`) and keep-alives are passed over.

    Raises:
        ValueError: A chunk is not JSON or of another shape, or there is none at all.
    """
    try:
        return _assemble(_chunks(body))
    except (AttributeError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"a chunk of another shape: {error}") from error


def _assemble(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    if not chunks:
        raise ValueError("a stream without a chunk")
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {}
    choice: dict[str, Any] = {"message": message}
    for chunk in chunks:
        whole |= {k: v for k, v in chunk.items() if k != "choices" and v is not None}
        for part in chunk.get("choices") or ():
            _join(message, part.get("delta") or {})
            _keep(choice, part, ("finish_reason", "native_finish_reason", "error"))
    if message:
        message["tool_calls"] = _in_order(message.get("tool_calls", {}))
        whole["choices"] = [choice]
    return whole


def _chunks(body: bytes) -> list[dict[str, Any]]:
    chunks = []
    for line in body.split(b"\n"):
        data = line.removeprefix(b"data:").strip()
        if line.startswith(b"data:") and data != b"[DONE]":
            chunks.append(msgspec.json.decode(data))
    return chunks


def _join(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("content", "reasoning", "reasoning_content"):
        if isinstance(text := delta.get(name), str):
            message[name] = message.get(name, "") + text
    calls = message.setdefault("tool_calls", {})
    for call in delta.get("tool_calls") or ():
        known = calls.setdefault(call.get("index", 0), {"function": {"name": "", "arguments": ""}})
        _keep(known, call, ("id", "type"))
        function = call.get("function") or {}
        for name in ("name", "arguments"):
            known["function"][name] += function.get(name) or ""


def _keep(into: dict[str, Any], part: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if part.get(name) is not None:
            into[name] = part[name]


def _in_order(calls: dict[int, Any]) -> list[Any]:
    return [calls[index] for index in sorted(calls)]
