"""Every value that flows between stages: frozen, complete, small. Absent is `None`."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class FinishReason(StrEnum):
    """Why the model stopped, as the API normalises it."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool. `arguments` is JSON text exactly as it came, never parsed and dumped."""

    id: str | None
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. `content` `None`: it has none (only tool calls); `""` is an empty answer.

    `other_reasoning`: thoughts that other fields of an answer give instead; they must not differ.
    """

    role: Role
    content: str | None = None
    reasoning: str | None = None
    other_reasoning: tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the model is asked.

    Attributes:
        id: As given, or SHA-256 of the canonical content; unique in a run.
        messages: Not empty; the last one is not the assistant's.
        tools: Tool definitions, each one JSON text.
        source: `file:line`, for people.
        dataset: Label of the input, else the file's stem.
    """

    id: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    source: str
    dataset: str

    def __post_init__(self) -> None:
        if not self.messages or self.messages[-1].role is Role.ASSISTANT:
            raise ValueError(f"prompt {self.id}: the last message must ask something")


@dataclass(frozen=True, slots=True)
class RecordCount:
    """How many records a file held, counted where it was read."""

    path: str
    records: int


@dataclass(frozen=True, slots=True)
class FailureCount:
    """How many prompts failed with a kind, and what one of them was told."""

    kind: str
    count: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of the serving model's tokenizer, as reported; cost in US dollars."""

    prompt_tokens: int | None
    completion_tokens: int
    reasoning_tokens: int | None
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer of the API. `finish_reason` `None`: absent, or a word that is not in the enum."""

    message: Message
    finish_reason: FinishReason | None
    native_finish_reason: str | None
    generation_id: str | None
    model: str | None
    provider: str | None
    usage: Usage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was asked and what came; the raw bytes are in the response store under the hash.

    `max_tokens` is the longest answer that was asked for.
    """

    prompt: Prompt
    max_tokens: int
    completion: Completion
    request_sha256: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of what the model wrote: ordinary text, or one special token by its literal."""

    text: str
    is_special: bool = False


class IssueCode(StrEnum):
    """Why a sample is not fit to train on: the closed vocabulary of bad verdicts."""

    LENGTH_TRUNCATED = "LENGTH_TRUNCATED"
    """The answer was cut by max_tokens: it has no end token."""
    FINISH_UNKNOWN = "FINISH_UNKNOWN"
    """The finish reason is absent, or none of stop, tool_calls, length."""
    EMPTY_ANSWER = "EMPTY_ANSWER"
    """Neither content nor a tool call."""
    REPLACEMENT_CHAR = "REPLACEMENT_CHAR"
    """U+FFFD or a lone surrogate: bytes were lost before the text reached us."""
    SPECIAL_TEXT_IN_OUTPUT = "SPECIAL_TEXT_IN_OUTPUT"
    """The text holds a special token's literal outside the grammar."""
    TOOL_SECTION_PARTIAL = "TOOL_SECTION_PARTIAL"
    """Tool markers in the content that do not make a whole section."""
    SECTION_LAYOUT_AMBIGUOUS = "SECTION_LAYOUT_AMBIGUOUS"
    """A section in the text and structured calls beside it."""
    TEXT_AFTER_SECTION = "TEXT_AFTER_SECTION"
    """Content goes on after the tool section."""
    TOOL_ID_AMBIGUOUS = "TOOL_ID_AMBIGUOUS"
    """A call's id is not of the form that the model writes, or names another tool."""
    REASONING_MISSING = "REASONING_MISSING"
    """No thought came from a model that thinks; an empty one is one."""
    REASONING_ENCRYPTED = "REASONING_ENCRYPTED"
    """The thought is withheld: encrypted, a summary, or redacted."""
    REASONING_FIELDS_DISAGREE = "REASONING_FIELDS_DISAGREE"
    """Two fields of the answer give different thoughts."""
    PROVIDER_UNKNOWN = "PROVIDER_UNKNOWN"
    """The answer does not say who made it: no habit can be known."""
    MODE_MISMATCH = "MODE_MISMATCH"
    """A thought where the profile has none."""
    TOOL_ID_INDEX_AMBIGUOUS = "TOOL_ID_INDEX_AMBIGUOUS"
    """A call's index does not go on from the conversation's: a server may have counted anew."""
    TOOL_ARGS_LOST = "TOOL_ARGS_LOST"
    """A call without arguments, not even `{}`."""
    SPECIAL_TOKEN_MISPLACED = "SPECIAL_TOKEN_MISPLACED"  # noqa: S105
    """The special ids are not the ones of the grammar in its order."""
    PREFILL_MISSING = "PREFILL_MISSING"
    """The prompt's ids do not end in the tokens that the template prefills."""
    USAGE_MISSING = "USAGE_MISSING"
    """No token count came with the answer: nothing can be proved."""
    COUNT_MISMATCH = "COUNT_MISMATCH"
    """As many ids as the provider counted could not be rebuilt; the residual is in the row."""
    EVIDENCE_TOO_WEAK = "EVIDENCE_TOO_WEAK"
    """The evidence is below what `--min_evidence` asks for."""


class Repair(StrEnum):
    """What was put back before the count fitted; named in the row."""

    SECTION_FROM_TEXT = "REPAIR_SECTION_FROM_TEXT"
    """The tool section stood as text in the content."""


class Evidence(StrEnum):
    """How strongly a sample's ids are proved, best first."""

    A1 = "A1"
    A2 = "A2"
    A3 = "A3"
    B1 = "B1"
    B2 = "B2"
    C = "C"


@dataclass(frozen=True, slots=True)
class Issue:
    """One fault of one sample; `position` is an index into `input_ids`, where there is one."""

    code: IssueCode
    detail: str
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """The answer as the model wrote it, in pieces that are never joined before encoding.

    Attributes:
        prompt_ids: int32[P], the prompt as the model saw it, up to and including its prefill.
        segments: What was sampled, in order.
        repairs: What had to be put back.
        issues: Faults that were seen on the way.
    """

    exchange: Exchange
    prompt_ids: tuple[int, ...]
    segments: tuple[Segment, ...]
    repairs: tuple[Repair, ...]
    issues: tuple[Issue, ...]

    @property
    def prompt(self) -> Prompt:
        return self.exchange.prompt

    @property
    def request_sha256(self) -> str:
        return self.exchange.request_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Token ids of one generation.

    Attributes:
        input_ids: int32[T].
        prompt_length: Ids before it are the prompt, ids from it on were sampled.
        special_positions: Indices into `input_ids` at which a marker was inserted, ascending.
        text: The sampled ids decoded, special tokens by their literal.
    """

    exchange: Exchange
    input_ids: tuple[int, ...]
    prompt_length: int
    special_positions: tuple[int, ...]
    text: str
    repairs: tuple[Repair, ...]
    issues: tuple[Issue, ...]

    @property
    def prompt(self) -> Prompt:
        return self.exchange.prompt

    @property
    def request_sha256(self) -> str:
        return self.exchange.request_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A sample and all that speaks against it. Good is: no issue.

    Attributes:
        residual: `usage.completion_tokens` less the number of sampled ids; `None` without usage.
        evidence: Class of proof.
        hidden_drift: Estimated share of such rows whose ids drifted without the count showing it.
        profile: Name of the model profile that was applied.
    """

    sample: Sample
    issues: tuple[Issue, ...]
    residual: int | None
    evidence: Evidence
    hidden_drift: float
    profile: str

    @property
    def prompt(self) -> Prompt:
        return self.sample.prompt

    @property
    def is_good(self) -> bool:
        return not self.issues
