"""A stream of server-sent events, put together to the object that a whole answer would be.

A stream of one token an event is 435 bytes an event, of which one text counts: the decoder skips
all that is not named here (2,000 events: 2 ms, 6 ms as dictionaries). What is not of the expected
types is decoded again, tolerantly.
"""

import re
from typing import Any

import msgspec

_THOUGHT, _OTHER_THOUGHT, _CONTENT = _TEXTS = ("reasoning", "reasoning_content", "content")


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None


class _Part(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: Any = None
    native_finish_reason: Any = None
    error: Any = None
    token_ids: Any = None
    logprobs: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Part] | None = None
    usage: Any = None
    error: Any = None


_DATA = re.compile(rb"^data:[ \t]*(?!\[DONE\]\s*$)(\S.*)", re.MULTILINE)
_DECODER = msgspec.json.Decoder(list[_Chunk])


def assemble_events(body: bytes) -> dict[str, Any]:
    """Joins the deltas of all chunks; comments (`: …`) and keep-alives are passed over.

    The choice has, beside its message, `chunks`: every text in the order it came, as pairs
    (field, text) with the field `reasoning` or `content`, empty ones left out.

    Raises:
        ValueError: A chunk is not JSON or of another shape, or there is none at all.
    """
    lines = _lines(body)
    try:
        chunks = _decode(b"[" + b",".join(lines) + b"]")
        if not chunks:
            raise ValueError("a stream without a chunk")
        choice = _join(chunks)
        return _about(lines, chunks) | ({"choices": [choice]} if choice else {})
    except (AttributeError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"a chunk of another shape: {error}") from error


def _lines(body: bytes) -> list[bytes]:
    """The data of all events. A line may end in LF, CR LF or CR; JSON has no raw CR inside."""
    if b"\r" in body:
        body = body.replace(b"\r", b"\n")
    return _DATA.findall(body)


def _decode(data: bytes) -> list[_Chunk]:
    """All chunks in one decoding: 2,000 events cost 3 ms less than one by one."""
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        return [_tolerate(chunk) for chunk in msgspec.json.decode(data)]


def _tolerate(chunk: dict[str, Any]) -> _Chunk:
    parts = [_tolerate_part(part) for part in chunk.get("choices") or ()]
    return _Chunk(parts, chunk.get("usage"), chunk.get("error"))


def _tolerate_part(part: dict[str, Any]) -> _Part:
    delta = part.get("delta") or {}
    texts = {name: text for name in _TEXTS if isinstance(text := delta.get(name), str)}
    said = {name: part.get(name) for name in _PART_FIELDS}
    return _Part(_Delta(**texts, tool_calls=delta.get("tool_calls")), **said)


_PART_FIELDS = ("finish_reason", "native_finish_reason", "error", "token_ids", "logprobs")


def _join(chunks: list[_Chunk]) -> dict[str, Any]:
    said = _Said()
    choice: dict[str, Any] = {}
    for part in [part for chunk in chunks for part in chunk.choices or ()]:
        if part.delta is not None:
            said.add(part.delta)
        if part.finish_reason is not None:
            choice["finish_reason"] = part.finish_reason
        if part.native_finish_reason is not None:
            choice["native_finish_reason"] = part.native_finish_reason
        if part.error is not None:
            choice["error"] = part.error
        if part.token_ids:
            choice.setdefault("token_ids", []).extend(part.token_ids)
        if part.logprobs:
            said.tokens += part.logprobs.get("content") or ()
    message = said.message()
    if not (message or said.calls or choice):
        return {}
    message["tool_calls"] = [said.calls[index] for index in sorted(said.calls)]
    choice["logprobs"] = {"content": said.tokens}
    return {"message": message, **choice, "chunks": said.chunks(message)}


class _Said:
    """What the deltas said so far."""

    __slots__ = ("_texts", "calls", "tokens")

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.calls: dict[int, dict[str, Any]] = {}
        self._texts: list[tuple[str, str]] = []

    def add(self, delta: _Delta) -> None:
        if delta.reasoning is not None:
            self._texts.append((_THOUGHT, delta.reasoning))
        if delta.reasoning_content is not None:
            self._texts.append((_OTHER_THOUGHT, delta.reasoning_content))
        if delta.content is not None:
            self._texts.append((_CONTENT, delta.content))
        if delta.tool_calls:
            _join_calls(self.calls, delta.tool_calls)

    def message(self) -> dict[str, Any]:
        names = dict.fromkeys([name for name, _ in self._texts])
        return {name: "".join([t for n, t in self._texts if n == name]) for name in names}

    def chunks(self, message: dict[str, Any]) -> list[tuple[str, str]]:
        """Of two fields of thought the first that says anything counts, as in a whole answer."""
        texts = [piece for piece in self._texts if piece[1]]
        if not message.get(_OTHER_THOUGHT):
            return texts
        if message.get(_THOUGHT):
            return [piece for piece in texts if piece[0] != _OTHER_THOUGHT]
        return [(_CONTENT if name == _CONTENT else _THOUGHT, text) for name, text in texts]


def _about(lines: list[bytes], chunks: list[_Chunk]) -> dict[str, Any]:
    """What is said beside the deltas: by the first and the last chunk, and by those that count."""
    last = len(chunks) - 1
    telling = [n for n, c in enumerate(chunks) if c.usage is not None or c.error is not None]
    whole: dict[str, Any] = {}
    for number in (0, *telling, last):
        said = msgspec.json.decode(lines[number])
        whole |= {name: v for name, v in said.items() if name != "choices" and v is not None}
    return whole


def _join_calls(calls: dict[int, dict[str, Any]], pieces: list[dict[str, Any]]) -> None:
    for call in pieces:
        known = calls.setdefault(call.get("index", 0), {"function": {"name": "", "arguments": ""}})
        known |= {name: call[name] for name in ("id", "type") if call.get(name) is not None}
        function = call.get("function") or {}
        for name in ("name", "arguments"):
            known["function"][name] += function.get(name) or ""
