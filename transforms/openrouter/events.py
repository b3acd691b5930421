"""A stream of server-sent events, put together to the object that a whole answer would be."""

from collections import defaultdict
from typing import Any

import msgspec

_TEXTS = ("reasoning", "reasoning_content", "content")


def assemble_events(body: bytes) -> dict[str, Any]:
    """Joins the deltas of all chunks; comments (`: …`) and keep-alives are passed over.

    Raises:
        ValueError: A chunk is not JSON or of another shape, or there is none at all.
    """
    try:
        return _assemble(_chunks(body))
    except (AttributeError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"a chunk of another shape: {error}") from error


def _chunks(body: bytes) -> list[dict[str, Any]]:
    """All chunks in one decoding: 2,000 events cost 3 ms less than one by one."""
    lines = (line[5:].strip() for line in body.split(b"\n") if line.startswith(b"data:"))
    data = [line for line in lines if line and line != b"[DONE]"]
    chunks: list[dict[str, Any]] = msgspec.json.decode(b"[" + b",".join(data) + b"]")
    if not chunks:
        raise ValueError("a stream without a chunk")
    return chunks


def _assemble(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    whole = _about(chunks)
    texts: dict[str, list[str]] = defaultdict(list)
    calls: dict[int, dict[str, Any]] = {}
    choice: dict[str, Any] = {}
    for chunk in chunks:
        for part in chunk.get("choices") or ():
            delta = part.get("delta") or {}
            for name in _TEXTS:
                if isinstance(text := delta.get(name), str):
                    texts[name].append(text)
            _join_calls(calls, delta)
            _keep(choice, part, ("finish_reason", "native_finish_reason", "error"))
    message: dict[str, Any] = {name: "".join(pieces) for name, pieces in texts.items()}
    if message or calls or choice:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
        whole["choices"] = [{"message": message, **choice}]
    return whole


def _about(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said beside the deltas: by the first and the last chunk, and by those that count."""
    whole: dict[str, Any] = {}
    telling = [chunk for chunk in chunks if "usage" in chunk or "error" in chunk]
    for chunk in (chunks[0], *telling, chunks[-1]):
        _keep(whole, chunk, [name for name in chunk if name != "choices"])
    return whole


def _join_calls(calls: dict[int, dict[str, Any]], delta: dict[str, Any]) -> None:
    for call in delta.get("tool_calls") or ():
        known = calls.setdefault(call.get("index", 0), {"function": {"name": "", "arguments": ""}})
        _keep(known, call, ("id", "type"))
        function = call.get("function") or {}
        for name in ("name", "arguments"):
            known["function"][name] += function.get(name) or ""


def _keep(into: dict[str, Any], part: dict[str, Any], names: Any) -> None:
    for name in names:
        if part.get(name) is not None:
            into[name] = part[name]
