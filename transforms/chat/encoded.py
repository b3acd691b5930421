"""A candidate as ids: each text alone, each marker by its id."""

from dataclasses import dataclass

from transforms.chat.profile import ModelProfile
from transforms.chat.tokens import Tokenizer, load_tokenizer
from transforms.failures import FailureKind, RecordError
from transforms.records import Candidate, Segment


@dataclass(frozen=True, slots=True)
class Encoded:
    """A candidate as ids.

    Attributes:
        specials: Indices of `ids` at which a marker was inserted.
        thought: How many ids are the thought, its markers aside.
        has_calls: There is a tool section.
    """

    candidate: Candidate
    ids: tuple[int, ...]
    specials: tuple[int, ...]
    thought: int
    has_calls: bool

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.candidate.segments)


def encode(
    candidate: Candidate, profile: ModelProfile, known: dict[str, list[int]] | None = None
) -> Encoded:
    """Each text alone, each marker by its id.

    `known`: ids of texts, kept over the candidates of one answer, which share most of them.

    Raises:
        RecordError: `NOT_ENCODABLE`, a text that its own ids do not give back.
    """
    known = {} if known is None else known
    ids: list[int] = []
    specials: list[int] = []
    thought = 0
    for number, segment in enumerate(candidate.segments):
        if segment.is_special:
            specials.append(len(ids))
            ids.append(profile.special_tokens[segment.text])
        else:
            if (found := known.get(segment.text)) is None:
                found = known[segment.text] = encode_text(segment.text, load_tokenizer(profile))
            ids += found
            thought += len(found) * (number < candidate.thought)
    return Encoded(candidate, tuple(ids), tuple(specials), thought, _has_calls(candidate, profile))


def _has_calls(candidate: Candidate, profile: ModelProfile) -> bool:
    tools = profile.answer.tools
    return tools is not None and Segment(tools.section_begin, is_special=True) in candidate.segments


def encode_text(text: str, tokenizer: Tokenizer) -> list[int]:
    """Ids of a text that give it back.

    Raises:
        RecordError: `NOT_ENCODABLE`.
    """
    ids = tokenizer.encode(text)
    if (back := tokenizer.decode(ids)) != text:
        same = next((i for i, (a, b) in enumerate(zip(text, back, strict=False)) if a != b), 0)
        detail = (
            f"text and its decoded ids differ from character {same}: {text[same : same + 20]!r}"
        )
        raise RecordError(FailureKind.NOT_ENCODABLE, detail)
    return ids
