"""Every value that flows between stages: frozen, complete, small. Absent is `None`."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from transforms.codes import Evidence, Flag, IssueCode, Repair


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

    `other_reasoning`: the thought as other fields of an answer give it; it must not differ.
    """

    role: Role
    content: str | None = None
    reasoning: str | None = None
    other_reasoning: tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """What a record says after an answer.

    Attributes:
        recorded: The recorded answer, whose place the model's own takes; empty if there is none.
        messages: Tool results and user turns up to the next answer; not empty.
    """

    recorded: tuple[Message, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the model is asked: one generation, or a conversation from one of them on.

    Attributes:
        id: Of this generation (`generations.py`), unique in a run.
        messages: Not empty; the last one is not the assistant's.
        tools: Tool definitions, each one JSON text.
        source: `file:line`, for people.
        dataset: Label of the input, else the file's stem.
        turn: Which of the conversation's generations it is, from 0.
        sample_index: Which of the samples that are asked for, from 0.
        later: What is asked when this is answered, turn by turn.
        wanted: Turns before this one are asked for the history alone; their rows are others'.
        judged_bad: Of a rejection that is fed back, the generation that was its answer.
    """

    id: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    source: str
    dataset: str
    turn: int = 0
    sample_index: int = 0
    later: tuple[FollowUp, ...] = ()
    wanted: int = 0
    judged_bad: str | None = None

    def __post_init__(self) -> None:
        if not self.messages or self.messages[-1].role is Role.ASSISTANT:
            raise ValueError(f"prompt {self.id}: the last message must ask something")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of the serving model's tokenizer, as reported; cost in US dollars."""

    prompt_tokens: int | None
    completion_tokens: int
    reasoning_tokens: int | None
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One entry of `logprobs.content`: the token's bytes, `None` where they are not told."""

    bytes: bytes | None
    logprob: float


@dataclass(frozen=True, slots=True)
class Chunks:
    """Texts of a stream's events in order, none empty, and whether each is of the thought.

    Two tuples: an object for each of thousands is walked by every collection of garbage.
    """

    texts: tuple[str, ...]
    are_thoughts: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """When an answer came; seconds of the clock.

    `first_at` and `last_at` are of text, not of padding.
    """

    started_at: float
    first_at: float
    last_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer of the API. `finish_reason` `None`: absent, or a word that is not in the enum.

    Attributes:
        token_ids: What the server says that it sampled; engines do, gateways do not.
        prompt_token_ids: What it says that it read.
        logprobs: An entry for each sampled token, if all of them are told.
        chunks: Of a stream; `None` for a whole answer.
        is_rewritten: The service says that it changed the text (citations).
    """

    message: Message
    finish_reason: FinishReason | None
    native_finish_reason: str | None
    generation_id: str | None
    model: str | None
    provider: str | None
    usage: Usage | None
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    chunks: Chunks | None = None
    is_rewritten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was asked and what came; the raw bytes are in the response store under the hash.

    Attributes:
        max_tokens: The longest answer that was asked for.
        settings: Fields of the request beside messages, tools and sampling, as a JSON object.
        arrival: When the answer came, if that is known.
        seed, temperature, top_p: As they were sent; `None`: they were not.
    """

    prompt: Prompt
    max_tokens: int
    completion: Completion
    request_sha256: str
    settings: str = "{}"
    arrival: Arrival | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of what the model wrote: ordinary text, or one special token by its literal."""

    text: str
    is_special: bool = False


@dataclass(frozen=True, slots=True)
class Issue:
    """One fault of one sample; `position` is an index into `input_ids`, where there is one."""

    code: IssueCode
    detail: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may have been sampled, in pieces that are never joined before encoding.

    Attributes:
        segments: In order.
        thought: How many of them, from the first, are the thought and its end.
        repairs: What had to be put back.
    """

    segments: tuple[Segment, ...]
    thought: int = 0
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """The answer as the model may have written it; the first candidate is the nearest.

    Attributes:
        prompt_ids: int32[P], the prompt as the model saw it, up to and including its prefill.
        issues: Faults that were seen on the way.
    """

    exchange: Exchange
    prompt_ids: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    issues: tuple[Issue, ...]
    flags: tuple[Flag, ...] = ()

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
        residual: Tokens counted less ids rebuilt, the host's habit aside; `None` without a count.
        evidence: What proves these ids, before anything speaks against them.
    """

    exchange: Exchange
    input_ids: tuple[int, ...]
    prompt_length: int
    special_positions: tuple[int, ...]
    text: str
    residual: int | None
    evidence: Evidence
    repairs: tuple[Repair, ...]
    issues: tuple[Issue, ...]
    flags: tuple[Flag, ...] = ()

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
        evidence: Class of proof.
        hidden_drift: Estimated share of such rows whose ids drifted without the count showing it.
        profile: Name of the model profile that was applied.
    """

    sample: Sample
    issues: tuple[Issue, ...]
    evidence: Evidence
    hidden_drift: float
    profile: str

    @property
    def prompt(self) -> Prompt:
        return self.sample.prompt

    @property
    def is_good(self) -> bool:
        return not self.issues
