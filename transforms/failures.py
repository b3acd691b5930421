"""What can go wrong with one record, and how it is written down.

`RecordError` means "this record and nothing else"; any other exception is a bug and stops the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from transforms.generations import first_turn, generations, id_at
from transforms.records import Prompt


class Stage(StrEnum):
    """The stage that refused a record."""

    READ = "ReadPrompts"
    CALL = "CallOpenRouter"
    RECONSTRUCT = "Reconstruct"
    TOKENIZE = "Tokenize"
    VALIDATE = "ValidateSpecialTokens"


class FailureKind(StrEnum):
    """Why no sample could be made."""

    UNREADABLE_FILE = "unreadable_file"
    """A file, or the rest of it, could not be read (cut archive, wrong checksum)."""
    MALFORMED_JSON = "malformed_json"
    """A line is not one JSON value in UTF-8."""
    INVALID_PROMPT = "invalid_prompt"
    """JSON, but not a prompt of a known shape."""
    DUPLICATE_ID = "duplicate_id"
    """The id was read before; the first one stands."""
    DUPLICATE_PROMPT = "duplicate_prompt"
    """The same text was read before under another id (`--dedup content`); the first one stands."""
    PROMPT_TOO_LONG = "prompt_too_long"
    """The prompt has more tokens than `--max_prompt_tokens`; it is never cut."""
    PROMPT_SPECIAL_TEXT = "PROMPT_SPECIAL_TEXT"
    """The prompt holds a special token's literal, which a server may read as the token."""
    RATE_LIMITED = "rate_limited"
    """429 to the last try."""
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    """No connection, or 5xx, to the last try."""
    TIMEOUT = "timeout"
    """No whole answer within the deadline, to the last try; possibly paid for."""
    INVALID_RESPONSE = "invalid_response"
    """Answers that are no answers: cut, empty, not JSON, no choices; to the last try."""
    WRONG_MODEL = "wrong_model"
    """Another model answered than was asked."""
    REFUSED = "refused"
    """The service refuses this request for good (400, 403, 413, 422, content filter)."""
    SERVICE_STOPPED = "service_stopped"
    """Not sent: the service answered that no request of this run can succeed."""
    SPEND_CAP = "spend_cap"
    """Not sent: the answer might have cost more than `--max_cost_usd` leaves."""
    INTERRUPTED = "interrupted"
    """Not sent, or abandoned: the run was interrupted."""
    HISTORY_UNKNOWN = "history_unknown"
    """Not asked: an earlier answer of its conversation is missing, cut, or not known exactly."""
    TOOL_RESULTS_UNFIT = "tool_results_unfit"
    """Not asked: the record's tool results are not of the calls that the model made."""
    NOT_COLLECTED = "not_collected"
    """The store holds no answer to this prompt: `--job collect` has not asked it."""
    TEMPLATE_ERROR = "template_error"
    """The chat template cannot render the prompt."""
    UNEXPECTED_TOOL_CALL = "unexpected_tool_call"
    """A tool call from a model whose profile has no grammar for one."""
    NOT_ENCODABLE = "not_encodable"
    """Text that does not come back from its own token ids."""


class ConfigError(ValueError):
    """The run cannot start: what, which value, what would be right."""


class StoreError(Exception):
    """The store cannot give or keep an answer: the run must stop before it pays for another."""


class RecordError(Exception):
    """This record cannot go on; all others can.

    Positional arguments, so that it can be pickled.
    """

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A record that became no sample, with all that is needed to try it again.

    Attributes:
        prompt: What was to be asked; `None` for a line that could not be read.
        raw: That line as text.
    """

    id: str
    stage: Stage
    kind: FailureKind
    detail: str
    source: str
    prompt: Prompt | None = None
    raw: str | None = None
    request_sha256: str | None = None


def fail(prompt: Prompt, stage: Stage, error: RecordError, request: str | None = None) -> Failure:
    """The failure of a prompt that was read; `request` is the hash of what was sent, if any."""
    return Failure(
        id=id_at(prompt, first_turn(prompt)),
        stage=stage,
        kind=error.kind,
        detail=error.detail,
        source=prompt.source,
        prompt=prompt,
        request_sha256=request,
    )


def fail_each(prompt: Prompt, stage: Stage, error: RecordError) -> Iterator[Failure]:
    """One failure for each generation that a prompt was to come to."""
    for one in generations(prompt):
        yield fail(one, stage, error)
