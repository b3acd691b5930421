"""Reconstruct: an answer's text, put back between the markers that the model sampled."""

import apache_beam as beam
from apache_beam.pvalue import PCollection

from transforms.chat.candidates import write_candidates
from transforms.chat.flags import find_flags
from transforms.chat.habits import Habit, stratum_of
from transforms.chat.habits_file import Habits
from transforms.chat.profile import ModelProfile
from transforms.chat.prompt_ids import read_prompt_ids
from transforms.chat.rejects import find_rejects, is_truncated
from transforms.chat.special_tokens import is_prompt_counted
from transforms.chat.view import Asked
from transforms.codes import Flag
from transforms.failures import FailureKind, RecordError, Stage
from transforms.outcome import MapOrFail, Outcome
from transforms.records import Exchange, Rendering


class Reconstruct(beam.PTransform):
    """Renders the prompt and writes what may have been sampled; see `reconstruct`."""

    def __init__(self, profile: ModelProfile, habits: Habits) -> None:
        super().__init__()
        self._values = {"profile": profile, "habits": habits}

    def expand(self, exchanges: PCollection[Exchange]) -> Outcome[Rendering]:
        return exchanges | MapOrFail(Stage.RECONSTRUCT, reconstruct, **self._values)


def reconstruct(exchange: Exchange, profile: ModelProfile, habits: Habits) -> Rendering:
    """The prompt's ids, and what may have been sampled as text and markers, the habit undone.

    Raises:
        RecordError: `TEMPLATE_ERROR`, `UNEXPECTED_TOOL_CALL`.
    """
    completion = exchange.completion
    if completion.message.tool_calls and profile.answer.tools is None:
        name = completion.message.tool_calls[0].name
        detail = f"the answer calls {name!r}, the profile has no [answer.tools]"
        raise RecordError(FailureKind.UNEXPECTED_TOOL_CALL, detail)
    habit = habits.of(stratum_of(completion)).habit
    asked = Asked(exchange, profile, habit)
    candidates, issues = write_candidates(asked, cut=is_truncated(exchange))
    prompt_ids, unsure = read_prompt_ids(exchange, profile, habit)
    return Rendering(
        exchange=exchange,
        prompt_ids=prompt_ids,
        candidates=candidates,
        issues=(*find_rejects(asked), *issues, *unsure),
        flags=(*find_flags(exchange, profile), *_prompt_flags(exchange, habit)),
    )


def _prompt_flags(exchange: Exchange, habit: Habit) -> tuple[Flag, ...]:
    is_told = exchange.completion.prompt_token_ids is not None
    is_known = is_told or is_prompt_counted(exchange, habit)
    return () if is_known else (Flag.PROMPT_UNVERIFIED,)
