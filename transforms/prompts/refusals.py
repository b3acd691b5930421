"""Records that look like prompts and are none: by their keys, each with its reason."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transforms.prompts.messages import invalid

_FEW = 12


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A record that has all of `keys` cannot be asked."""

    keys: frozenset[str]
    why: str


def _refusal(keys: str, why: str) -> _Refusal:
    return _Refusal(frozenset(keys.split()), why)


_REFUSALS = (
    _refusal("messages_display", "a flattened transcript that lost its tool calls"),
    _refusal("user_scenario", "a task for a simulated user, not a prompt"),
    _refusal("instruction actions", "a task for a simulated user, not a prompt"),
    _refusal("tts_text", "a text-to-speech record, not a prompt"),
    _refusal("prompt_text prompt_wav", "a text-to-speech record, not a prompt"),
    _refusal("name description parameters", "a tool definition, not a prompt"),
    _refusal("answer_without_request", "an answer whose request is not known proves nothing"),
    _refusal("type function", "a tool definition, not a prompt"),
)
_MEDIA = ("images", "image", "audios", "audio", "videos", "video")
_NEEDED = ("context", "passage", "passages", "article", "story", "document", "documents",
           "paragraph", "options", "choices", "table", "evidence")  # fmt: skip
"""What a question may refer to: without it, it is another question."""
# A whole dialogue in one text: it starts with one speaker and goes on with the other.
_SPEAKERS = re.compile(
    r"\A\s*(?:#+ ?)?(?:SYSTEM|USER|System|User|Human|HUMAN) ?:.*"
    r"\n\s*(?:#+ ?)?(?:ASSISTANT|Assistant|GPT) ?:",
    re.DOTALL,
)


def refuse_no_prompt(record: Mapping[str, Any]) -> None:
    """Refuses tool documentation, simulators' tasks, media and lost transcripts.

    Raises:
        RecordError: `INVALID_PROMPT`.
    """
    keys = record.keys()
    if refusal := next((item for item in _REFUSALS if item.keys <= keys), None):
        raise invalid(refusal.why)
    if medium := next((name for name in _MEDIA if record.get(name)), None):
        raise invalid(f"it has {medium}; only text can be asked")


def refuse_incomplete(record: Mapping[str, Any]) -> None:
    """Refuses a question or instruction that stands beside what it is about.

    Raises:
        RecordError: `INVALID_PROMPT`.
    """
    if needed := next((name for name in _NEEDED if record.get(name)), None):
        raise invalid(
            f"its question may need {needed!r}, which no shape joins to it; "
            "name a field that holds the whole prompt with --prompt_field"
        )


def refuse_transcript(text: str) -> None:
    """Refuses a text that holds a dialogue with its speakers' marks.

    Raises:
        RecordError: `INVALID_PROMPT`.
    """
    if _SPEAKERS.match(text):
        raise invalid("a dialogue flattened into one text with its speakers' marks")


def unknown(record: Mapping[str, Any], wanted: str) -> str:
    """What is said of a record of no shape."""
    if "text" in record and not record.keys() - {"text", "meta", "id", "url", "timestamp"}:
        return "plain text without a role or a question; --prompt_field text asks it"
    names = [str(name)[:40] for name in record]
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"it has {', '.join(names[:_FEW]) or 'no key'}{more}; none of the keys {wanted}"
