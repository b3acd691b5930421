"""Tokenize: segments -> ids. The joined text is never tokenised, so text stays text."""

import apache_beam as beam
from apache_beam.pvalue import PCollection

from transforms.chat.profile import ModelProfile
from transforms.chat.tokens import Tokenizer, load_tokenizer
from transforms.failures import FailureKind, RecordError, Stage
from transforms.outcome import MapOrFail, Outcome
from transforms.records import Rendering, Sample


class Tokenize(beam.PTransform):
    """Encodes each text alone and inserts each marker's id; see `tokenize`."""

    def __init__(self, profile: ModelProfile) -> None:
        super().__init__()
        self._profile = profile

    def expand(self, renderings: PCollection[Rendering]) -> Outcome[Sample]:
        return renderings | MapOrFail(Stage.TOKENIZE, tokenize, profile=self._profile)


def tokenize(rendering: Rendering, profile: ModelProfile) -> Sample:
    """int32[T]: the prompt's ids, then each segment's.

    Raises:
        RecordError: `NOT_ENCODABLE`, a text that its own ids do not give back.
    """
    tokenizer = load_tokenizer(profile)
    input_ids = list(rendering.prompt_ids)
    specials: list[int] = []
    for segment in rendering.segments:
        if segment.is_special:
            specials.append(len(input_ids))
            input_ids.append(profile.special_tokens[segment.text])
        else:
            input_ids += _encode(segment.text, tokenizer)
    return Sample(
        exchange=rendering.exchange,
        input_ids=tuple(input_ids),
        prompt_length=len(rendering.prompt_ids),
        special_positions=tuple(specials),
        text="".join(segment.text for segment in rendering.segments),
        repairs=rendering.repairs,
        issues=rendering.issues,
    )


def _encode(text: str, tokenizer: Tokenizer) -> list[int]:
    ids = tokenizer.encode(text)
    if (back := tokenizer.decode(ids)) != text:
        same = next((i for i, (a, b) in enumerate(zip(text, back, strict=False)) if a != b), 0)
        detail = (
            f"text and its decoded ids differ from character {same}: {text[same : same + 20]!r}"
        )
        raise RecordError(FailureKind.NOT_ENCODABLE, detail)
    return ids
