"""Tokenize: segments -> ids. The joined text is never tokenised, so text stays text."""

import apache_beam as beam
from apache_beam.pvalue import PCollection

from transforms.chat.habits import stratum_of
from transforms.chat.habits_file import Habits
from transforms.chat.judging import judge_candidates
from transforms.chat.profile import ModelProfile
from transforms.failures import Stage
from transforms.outcome import MapOrFail, Outcome
from transforms.records import Rendering, Sample


class Tokenize(beam.PTransform):
    """Encodes each candidate and takes the one that the evidence leaves; see `tokenize`."""

    def __init__(self, profile: ModelProfile, habits: Habits) -> None:
        super().__init__()
        self._values = {"profile": profile, "habits": habits}

    def expand(self, renderings: PCollection[Rendering]) -> Outcome[Sample]:
        return renderings | MapOrFail(Stage.TOKENIZE, tokenize, **self._values)


def tokenize(rendering: Rendering, profile: ModelProfile, habits: Habits) -> Sample:
    """int32[T]: the prompt's ids, then those of the candidate that the evidence leaves.

    Raises:
        RecordError: `NOT_ENCODABLE`, a text that its own ids do not give back.
    """
    learned = habits.of(stratum_of(rendering.exchange.completion))
    judged = judge_candidates(rendering, profile, learned)
    start = len(rendering.prompt_ids)
    return Sample(
        exchange=rendering.exchange,
        input_ids=(*rendering.prompt_ids, *judged.chosen.ids),
        prompt_length=start,
        special_positions=tuple(start + place for place in judged.chosen.specials),
        text=judged.chosen.text,
        residual=judged.residual,
        evidence=judged.evidence,
        repairs=judged.chosen.candidate.repairs,
        issues=(*rendering.issues, *judged.issues),
        flags=rendering.flags,
    )
