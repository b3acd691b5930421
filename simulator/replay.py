"""Serves recorded answers, byte for byte, to the prompts that they answered."""

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded reply."""

    status: int
    body: bytes
    is_stream: bool
    provider: str


class Replay:
    """Recordings by prompt.

    A file has one JSON object a line: `request` (with messages), `response_body` (text as it came),
    and optionally `http_status`, `stream`, `provider`.
    """

    def __init__(self, path: Path) -> None:
        self._recordings: dict[str, list[Recording]] = defaultdict(list)
        with path.open(encoding="utf-8") as file:
            for line in filter(str.strip, file):
                row = json.loads(line)
                self._recordings[prompt_key(row["request"])].append(
                    Recording(
                        status=row.get("http_status", 200),
                        body=row["response_body"].encode(),
                        is_stream=row.get("stream", False),
                        provider=row.get("provider") or "",
                    )
                )

    def find(self, body: dict[str, Any], seen: int) -> Recording | None:
        """The recording of a prompt; the n-th asking of the same body gets the n-th one.

        `provider.only` in the body chooses among the providers that were recorded.
        """
        found = self._recordings.get(prompt_key(body), [])
        only = (body.get("provider") or {}).get("only")
        found = [recording for recording in found if not only or recording.provider in only]
        return found[seen % len(found)] if found else None


def prompt_key(body: dict[str, Any]) -> str:
    """Digest of what was asked: roles, texts, calls and results."""
    asked = [
        [
            message.get("role"),
            message.get("content"),
            message.get("tool_call_id"),
            [
                [call.get("id"), call["function"]["name"], call["function"].get("arguments")]
                for call in message.get("tool_calls") or ()
            ],
        ]
        for message in body["messages"]
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
