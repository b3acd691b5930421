"""What a provider does to what the model sampled on its way to us: one setting for each host."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from transforms.records import Completion


class Blanks(StrEnum):
    """What happens to white space at the edges of thought and content."""

    VERBATIM = "verbatim"
    AROUND_MARKERS = "around_markers"
    """A blank on either side of every marker (vLLM's default for slow tokenizers, vllm#33457)."""
    BEFORE_THOUGHT = "before_thought"
    AFTER_THOUGHT = "after_thought"
    BEFORE_CONTENT = "before_content"
    NEWLINE_BEFORE_CONTENT = "newline_before_content"
    NEWLINES_BEFORE_CONTENT = "newlines_before_content"
    TRIMMED = "trimmed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Edges:
    """What a host puts at the four edges."""

    thought_start: str = ""
    thought_end: str = ""
    content_start: str = ""
    content_end: str = ""
    """Where calls follow."""


INSERTED: Mapping[Blanks, Edges] = MappingProxyType({
    Blanks.VERBATIM: Edges(),
    Blanks.AROUND_MARKERS: Edges(" ", " ", " ", " "),
    Blanks.BEFORE_THOUGHT: Edges(thought_start=" "),
    Blanks.AFTER_THOUGHT: Edges(thought_end=" "),
    Blanks.BEFORE_CONTENT: Edges(content_start=" "),
    Blanks.NEWLINE_BEFORE_CONTENT: Edges(content_start="\n"),
    Blanks.NEWLINES_BEFORE_CONTENT: Edges(content_start="\n\n"),
})  # fmt: skip
"""The settings that can be undone; of the first two each is likelier than what explains less."""


class Ids(StrEnum):
    """What the ids of calls are."""

    NATIVE = "native"
    BARE = "bare"
    """The model's without its first word: `NAME:N` for `functions.NAME:N` (Moonshot, Novita)."""
    RENEWED = "renewed"
    """The host's own (`call_…`, digits, nothing)."""
    RENUMBERED = "renumbered"
    """The model's form, counted anew in each answer."""
    UNKNOWN = "unknown"


class Arguments(StrEnum):
    """What happens to the JSON of arguments."""

    VERBATIM = "verbatim"
    COMPACTED = "compacted"
    SPACED = "spaced"
    ESCAPED = "escaped"
    SORTED = "sorted"
    DOUBLY_ENCODED = "doubly_encoded"
    UNKNOWN = "unknown"


class ThoughtCount(StrEnum):
    """What `reasoning_tokens` is."""

    UNRELIABLE = "unreliable"
    WITH_END = "with_end"
    """Tokens of the thought and its end marker (Chutes)."""
    WITHOUT_END = "without_end"
    """Tokens of the thought (vLLM since June 2026)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """One host's setting; the default is a host that changes nothing and counts what was sampled.

    Attributes:
        text_offset: Tokens counted less tokens sampled, of answers without calls: -1 where the end
            token is not counted, 1 where the prompt's opening of the thought is.
        calls_offset: The same of answers with calls.
        unsure_starts: Of `thought` and `content`, those at whose start blanks may be trimmed.
        prompt_offset: Prompt tokens counted less tokens rendered, of prompts without tools;
            `tools_prompt_offset`: of those with tools; `None`: not known.
        prefills: Its template opens the thought; else the model does.
        keeps_history: It shows the model the thoughts of earlier turns.
        counts_thought: False: `completion_tokens` leaves the thought out.
        counts_text: It counts the text again, not what was sampled.
        strips_markers: It removes the tool markers from the text of calls.
        strips_thought_end: It removes the end of the thought from the text.
        joins_around_calls: It puts text before and after the tool section into one content.
        streams_tokens: Each event of its streams is one token, and so counted.
    """

    text_offset: int = 0
    calls_offset: int = 0
    blanks: Blanks = Blanks.VERBATIM
    unsure_starts: tuple[str, ...] = ()
    ids: Ids = Ids.NATIVE
    arguments: Arguments = Arguments.VERBATIM
    thought_count: ThoughtCount = ThoughtCount.UNRELIABLE
    prompt_offset: int | None = None
    tools_prompt_offset: int | None = None
    prefills: bool = True
    keeps_history: bool = True
    counts_thought: bool = True
    counts_text: bool = False
    strips_markers: bool = False
    strips_thought_end: bool = False
    joins_around_calls: bool = False
    streams_tokens: bool = False

    def offset_of_prompt(self, *, tools: bool) -> int | None:
        """Prompt tokens counted less tokens rendered."""
        return self.tools_prompt_offset if tools else self.prompt_offset

    def offset(self, *, calls: bool) -> int:
        """Tokens counted less tokens sampled."""
        return self.calls_offset if calls else self.text_offset


PROMPT_OFFSETS = range(-1, 4)
"""The opening of the thought counted as output, to three tokens of the host's own template."""
GUESS = Habit(blanks=Blanks.UNKNOWN, ids=Ids.UNKNOWN, arguments=Arguments.UNKNOWN)
"""What an answer of a host of which nothing is known is rebuilt with; it is never good."""


@dataclass(frozen=True, slots=True, order=True)
class Stratum:
    """Whose answers have a habit in common."""

    provider: str
    model: str


UNKNOWN_PROVIDER = "unknown"


def stratum_of(completion: Completion) -> Stratum:
    """The stratum an answer belongs to."""
    return Stratum(completion.provider or UNKNOWN_PROVIDER, completion.model or "")
