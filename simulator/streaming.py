"""An answer as server-sent events: cut at the edges of tokens, never within a character."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from simulator.dialects import Dialect
from simulator.engine import Generation
from simulator.habits import Said
from simulator.reply import write_json
from simulator.tokens import Kimi
from simulator.wire import Label

COMMENT = b": OPENROUTER PROCESSING\n\n"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event, and how many tokens had been sampled when it was written."""

    data: bytes
    tokens: int


@dataclass(slots=True)
class Stream:
    """All events of an answer, and the texts of its chunks in order, thought before content."""

    events: list[Event] = field(default_factory=list)
    chunks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriter:
    """Writes streams of one answer's label.

    Attributes:
        shows_ids: Chunks carry the ids that were sampled since the chunk before.
    """

    label: Label
    dialect: Dialect
    kimi: Kimi
    tokens_per_chunk: int
    shows_ids: bool = False

    def write(self, generation: Generation, said: Said, usage: dict[str, Any]) -> Stream:
        """The whole stream."""
        stream = Stream()
        told = 0
        for delta, text, sampled in self._deltas(generation, said):
            ids = generation.completion_ids[told:sampled]
            stream.events.append(Event(self._event(delta, ids), sampled))
            told = max(told, sampled)
            if text is not None:
                stream.chunks.append(text)
        stream.events += self._endings(generation, said, usage, told)
        return stream

    def chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """A chunk around its choices."""
        return {**self.dialect.head(self.label, "chat.completion.chunk"), "choices": choices}

    def _event(self, delta: dict[str, Any], ids: list[int]) -> bytes:
        choice = self.dialect.choice(delta, None)
        if self.shows_ids:
            choice["token_ids"] = ids
        return b"data: " + write_json(self.chunk([choice])) + b"\n\n"

    def _deltas(
        self, generation: Generation, said: Said
    ) -> Iterator[tuple[dict[str, Any], str | None, int]]:
        """Delta, its text unless it is of a call, and the tokens sampled so far."""
        for text, sampled in self._pieces(generation.thought, said.thought):
            yield self.dialect.thought_delta(text), text, sampled
        start = len(generation.thought) + generation.thought_closed
        for text, sampled in self._pieces(generation.content, said.content):
            yield {"content": text, "role": "assistant"}, text, start + sampled
        start += len(generation.content) + 1
        yield from self._calls(generation, said, start)

    def _calls(
        self, generation: Generation, said: Said, start: int
    ) -> Iterator[tuple[dict[str, Any], None, int]]:
        for index, (call, told) in enumerate(zip(generation.calls, said.calls, strict=False)):
            start += 2 + len(call.identity)
            function = {"name": told.name, "arguments": ""}
            first = {"index": index, "id": told.identity, "type": "function", "function": function}
            yield _call_delta(first), None, start
            for text, sampled in self._pieces(call.arguments, told.arguments):
                piece = {"index": index, "function": {"arguments": text}}
                yield _call_delta(piece), None, start + sampled
            start += len(call.arguments) + 1

    def _pieces(self, ids: list[int], text: str) -> Iterator[tuple[str, int]]:
        """Texts with the count of tokens up to their ends; a habit's text has tokens of its own."""
        if self.kimi.decode(ids) != text:
            ids = self.kimi.encode_plain(text)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tokens = self.kimi.decode_bytes(ids)
        for start in range(0, len(ids), self.tokens_per_chunk):
            end = min(start + self.tokens_per_chunk, len(ids))
            piece = decoder.decode(b"".join(tokens[start:end]), final=end == len(ids))
            if piece:
                yield piece, end

    def _endings(
        self, generation: Generation, said: Said, usage: dict[str, Any], told: int
    ) -> list[Event]:
        total = len(generation.completion_ids)
        choice = self.dialect.choice(self.dialect.last_delta, said.finish_reason)
        finish = self.chunk([choice])
        if self.shows_ids:
            choice["token_ids"] = generation.completion_ids[told:]
            finish["prompt_token_ids"] = generation.prompt_ids
        counted = {**self.chunk(self.dialect.usage_choices(said.finish_reason)), "usage": usage}
        events = [b"data: " + write_json(chunk) + b"\n\n" for chunk in (finish, counted)]
        return [Event(data, total) for data in (*events, DONE)]


def _call_delta(piece: dict[str, Any]) -> dict[str, Any]:
    return {"content": None, "role": "assistant", "tool_calls": [piece]}
