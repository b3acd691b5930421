"""AsText: samples as text, only where the text gives the same ids again."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.pvalue import TaggedOutput

from transforms.chat.profile import ModelProfile, all_special_tokens, special_literals
from transforms.chat.tokens import load_tokenizer, split_long
from transforms.encoding.formats import FORMATS
from transforms.encoding.json_lines import encode_line
from transforms.encoding.texts import TextRow
from transforms.records import Sample, Verdict

LEFT_OUT = "left_out"


class AsTextFn(beam.DoFn):
    """A line for each text format, tagged by its name; what cannot be one is `LEFT_OUT`."""

    def __init__(self, profile: ModelProfile, formats: tuple[str, ...]) -> None:
        self._profile = profile
        self._formats = formats

    def process(self, verdict: Verdict) -> Iterator[Any]:
        row = as_text(verdict.sample, self._profile)
        for name in self._formats:
            make = FORMATS[name].text
            line = make(row) if make and row else None
            if line is None:
                asked = verdict.sample.prompt
                left = {"id": asked.id, "dataset": asked.dataset, "format": name}
                yield TaggedOutput(LEFT_OUT, msgspec.json.encode(left) + b"\n")
            else:
                yield TaggedOutput(name, encode_line(line))


def as_text(sample: Sample, profile: ModelProfile) -> TextRow | None:
    """The sample decoded; `None` if a trainer that tokenises the text would get other ids."""
    tokenizer = load_tokenizer(profile)
    prompt = tokenizer.decode(sample.input_ids[: sample.prompt_length])
    if encode_parsed(prompt + sample.text, profile) != list(sample.input_ids):
        return None
    return TextRow(sample.prompt.id, sample.prompt.dataset, prompt, sample.text)


def encode_parsed(text: str, profile: ModelProfile) -> list[int]:
    """Ids of a text as trainers tokenise it: literals of special tokens become those tokens."""
    encode = load_tokenizer(profile).encode
    special = all_special_tokens(profile)
    ids: list[int] = []
    for piece in split_long(text, profile.tokenizer):
        end = 0
        for literal in special_literals(profile).finditer(piece):
            ids += [*encode(piece[end : literal.start()]), special[literal[0]]]
            end = literal.end()
        ids += encode(piece[end:])
    return ids
