"""Reconstruct: an answer's text, put back between the markers that the model sampled."""

import apache_beam as beam
from apache_beam.pvalue import PCollection

from transforms.chat.grammar import write_answer
from transforms.chat.profile import ModelProfile
from transforms.chat.render import render_prompt
from transforms.failures import Stage
from transforms.outcome import MapOrFail, Outcome
from transforms.records import Exchange, Rendering


class Reconstruct(beam.PTransform):
    """Renders the prompt and writes the answer in segments; see `reconstruct`."""

    def __init__(self, profile: ModelProfile) -> None:
        super().__init__()
        self._profile = profile

    def expand(self, exchanges: PCollection[Exchange]) -> Outcome[Rendering]:
        return exchanges | MapOrFail(Stage.RECONSTRUCT, reconstruct, profile=self._profile)


def reconstruct(exchange: Exchange, profile: ModelProfile) -> Rendering:
    """The prompt's ids, and what was sampled as text and markers.

    Raises:
        RecordError: `TEMPLATE_ERROR`, `UNEXPECTED_TOOL_CALL`.
    """
    answer = write_answer(exchange, profile)
    return Rendering(
        exchange=exchange,
        prompt_ids=render_prompt(exchange.prompt, profile),
        segments=answer.segments,
        repairs=answer.repairs,
        issues=answer.issues,
    )
