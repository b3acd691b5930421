"""From what all answers of a host say to its habit: one setting, or none rather than a guess."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from transforms.chat.habits import (
    GUESS,
    INSERTED,
    PROMPT_OFFSETS,
    Arguments,
    Blanks,
    Habit,
    Ids,
    Stratum,
    ThoughtCount,
)
from transforms.chat.residuals import Residuals
from transforms.chat.starts import STARTS, proved_starts, still_unsure
from transforms.chat.statistic import HISTORIES, Statistic

EXPLAINED = 0.95
"""Share of a host's answers that a setting must explain."""
_FEWEST = {0: 3, 1: 8, -1: 8}
"""Answers that it takes to know an offset. A lone -1 of a host that counts the end token is a
fault, not a habit; the hosts that were recorded show theirs in every single answer."""
_MOST = 0.5

_NONE = Residuals()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A host's habit and how well it explains what was seen.

    Attributes:
        text, calls: Residuals under the habit of answers without and with calls.
        knows_text, knows_calls: Whether those answers may be judged by it.
    """

    habit: Habit
    text: Residuals = _NONE
    calls: Residuals = _NONE
    knows_text: bool = True
    knows_calls: bool = True

    def knows(self, *, calls: bool) -> bool:
        return self.knows_calls if calls else self.knows_text

    def residuals(self, *, calls: bool) -> Residuals:
        return self.calls if calls else self.text


@dataclass(frozen=True, slots=True)
class _Fit:
    """A setting of one kind of answers with the offset under which most fit."""

    offset: int
    fits: int
    answers: int
    residuals: Residuals

    @property
    def explains(self) -> bool:
        return self.answers >= _FEWEST[self.offset] and self.fits >= EXPLAINED * self.answers


def learn_all(seen: Mapping[Stratum, Statistic]) -> dict[Stratum, Learned]:
    """What is known of every host; how a model begins its texts is learned from all its hosts."""
    alone = {stratum: learn(statistic) for stratum, statistic in seen.items()}
    found = {}
    for stratum, learned in alone.items():
        peers = [(seen[s], alone[s].habit) for s in seen if s.model == stratum.model]
        unsure = still_unsure(seen[stratum], learned.habit, peers)
        found[stratum] = replace(learned, habit=replace(learned.habit, unsure_starts=unsure))
    return found


def learn(statistic: Statistic) -> Learned:
    """The setting that explains at least 95 % of a host's answers, for each kind of answer."""
    ids = _learn_ids(statistic)
    blanks = _learn_blanks(statistic, ids)
    text = _fit(statistic, "text", blanks.value)
    arguments, calls = _learn_calls(statistic, blanks, ids)
    kept = _learn_history(statistic)
    habit = Habit(
        text_offset=text.offset,
        calls_offset=calls.offset,
        blanks=blanks,
        ids=ids,
        arguments=arguments,
        thought_count=_learn_thought_count(statistic, blanks),
        keeps_history=kept == "kept",
        prompt_offset=_learn_prompt(statistic, kept, "plain"),
        tools_prompt_offset=_learn_prompt(statistic, kept, "tools"),
        strips_thought_end=_share(statistic.values("only_thought"), 1) >= _MOST,
        streams_tokens=_streams_tokens(statistic, text.offset),
    )
    one_more_is_known = {habit.prompt_offset, habit.tools_prompt_offset} - {None} == {-1}
    if text.offset == 1 and not one_more_is_known:
        habit = replace(habit, streams_tokens=False)
    unsure = tuple(name for name in STARTS if name not in proved_starts(statistic, habit))
    return Learned(
        habit=replace(habit, unsure_starts=unsure),
        text=text.residuals,
        calls=calls.residuals,
        knows_text=(text.offset != 1 or one_more_is_known)
        and _is_known(text, replace(habit, ids=Ids.NATIVE, arguments=Arguments.VERBATIM)),
        knows_calls=(calls.offset != 1 or one_more_is_known)
        and _is_known(calls, habit)
        and ids is not Ids.UNKNOWN,
    )


def _is_known(fit: _Fit, habit: Habit) -> bool:
    """Whether answers of a kind may be judged: where nothing is explained away, one speaks for it.

    What so few answers promise is written in the rows, as `hidden_drift`.
    """
    changes = (habit.blanks, habit.ids, habit.arguments)
    is_plain = fit.offset == 0 and changes == _UNCHANGED
    fits = fit.answers > 0 and fit.fits >= EXPLAINED * fit.answers
    return fit.explains or (is_plain and fits)


_UNCHANGED = (Blanks.VERBATIM, Ids.NATIVE, Arguments.VERBATIM)


def _share(values: dict[int, int], value: int) -> float:
    return values.get(value, 0) / max(sum(values.values()), 1)


def _fit(statistic: Statistic, kind: str, *setting: str) -> _Fit:
    """The offset under which most answers of a kind fit a setting; none explains nothing."""
    values = statistic.values(kind, *setting)
    answers = sum(statistic.values("answers", kind).values())
    if Ids.NATIVE.value in setting:  # an id that is not there is a fault of one answer
        answers -= sum(statistic.values("ids", "lost").values())
    offset = max((0, -1, 1), key=lambda one: values.get(one, 0))
    fits = values.get(offset, 0)
    shifted = tuple((value - offset, count) for value, count in sorted(values.items()))
    if sum(values.values()) != answers:  # several forms of an answer, each with its residual
        shifted = tuple(found for found in ((0, fits), (1, answers - fits)) if found[1])
    return _Fit(offset, fits, answers, Residuals(shifted))


def _learn_blanks(statistic: Statistic, ids: Ids) -> Blanks:
    """The setting under which most answers fit; of equals the one that needs no offset, else none.

    A thought that always ends in a blank, one token too many, is a host that inserts blanks, not
    one that does not count the end token. Where nothing tells "The" from " The", a blank that is
    shown is taken for sampled: hosts that insert blanks do so after the thought too (fidelity.md,
    4.1), and then before it as well where one is there.
    """

    def fits(blanks: Blanks) -> tuple[int, int]:
        kinds = (
            _fit(statistic, "text", blanks.value),
            _learn_calls(statistic, blanks, ids)[1],
        )
        return sum(fit.fits for fit in kinds), sum(fit.fits for fit in kinds if fit.offset == 0)

    most = max(map(fits, INSERTED))
    best = [blanks for blanks in INSERTED if fits(blanks) == most]
    is_clear = len(best) == 1 or best[0] in {Blanks.VERBATIM, Blanks.AROUND_MARKERS}
    return best[0] if is_clear else Blanks.UNKNOWN


def _learn_calls(statistic: Statistic, blanks: Blanks, ids: Ids) -> tuple[Arguments, _Fit]:
    """What happens to arguments: nothing, if that explains enough; else what explains most."""
    told = Ids.NATIVE if ids in {Ids.UNKNOWN, Ids.RENUMBERED} else ids
    found = {
        arguments: _fit(statistic, "calls", blanks.value, told.value, arguments.value)
        for arguments in Arguments
    }
    if _share(statistic.values("sorted"), 1) >= EXPLAINED:
        return Arguments.SORTED, found[Arguments.VERBATIM]
    verbatim = found[Arguments.VERBATIM]
    best = max(found, key=lambda one: found[one].fits)
    if verbatim.explains or not found[best].explains:
        return Arguments.VERBATIM, verbatim
    return best, found[best]


def _learn_ids(statistic: Statistic) -> Ids:
    """What ids are: as they came if that explains enough and most are of the model's form.

    Else the one setting that explains the counts; two that do are none. (A one-call answer whose
    id lacks a token fits as it came where the end token is not counted: two errors cancel.)
    """
    forms = {name: sum(statistic.values("ids", name).values()) for name in _FORMS}
    if not any(forms.values()):
        return Ids.NATIVE  # no call was seen: `knows_calls` says that nothing is known
    seen = sum(forms.values())
    if forms["native"] >= _MOST * seen and _explain(statistic, Ids.NATIVE):
        restarts = _share(statistic.values("index"), 0)
        return Ids.RENUMBERED if restarts > 1 - EXPLAINED else Ids.NATIVE
    settings = (Ids.NATIVE, Ids.BARE) if forms["bare"] >= EXPLAINED * seen else (Ids.RENEWED,)
    found = [ids for ids in settings if _explain(statistic, ids)]
    return found[0] if len(found) == 1 else Ids.UNKNOWN


_FORMS = ("native", "bare", "other", "lost")


def _explain(statistic: Statistic, ids: Ids) -> bool:
    """Whether a setting of ids, with any other setting, has the counts of nearly all answers."""
    fits = (_learn_calls(statistic, blanks, ids)[1] for blanks in INSERTED)
    return any(fit.answers and fit.fits >= EXPLAINED * fit.answers for fit in fits)


def _streams_tokens(statistic: Statistic, offset: int) -> bool:
    """Whether streams have as many chunks as tokens were counted, the offset aside.

    Not all: a character of several tokens comes as one chunk. Chunks of several tokens are fewer by
    a number that grows with the answer.
    """
    values = statistic.values("stream")
    most = max(values.values(), default=0)
    return values.get(offset, 0) == most >= _FEWEST[offset]


def _learn_thought_count(statistic: Statistic, blanks: Blanks) -> ThoughtCount:
    """Exact in most answers is exact: the others are damaged, or their tokens are others."""
    values = statistic.values("thought")
    if blanks is Blanks.VERBATIM and sum(values.values()) >= _FEWEST[0]:
        for value, found in ((1, ThoughtCount.WITH_END), (0, ThoughtCount.WITHOUT_END)):
            if _share(values, value) > _MOST:
                return found
    return ThoughtCount.UNRELIABLE


def _learn_history(statistic: Statistic) -> str:
    """Whether thoughts of earlier turns are shown: what explains more counts of prompts."""

    def most(history: str) -> int:
        kinds = (statistic.values("prompt", history, kind) for kind in ("plain", "tools"))
        return sum(max(values.values(), default=0) for values in kinds)

    return max(HISTORIES, key=most)


def _learn_prompt(statistic: Statistic, history: str, kind: str) -> int | None:
    """What most prompts of a kind are counted more than rendered; `None`: they do not agree.

    Hosts add up to three tokens of their own (Kimi-Vendor-Verifier). More is another template,
    as most hosts of K2-0905 have for tools: what they make of a prompt cannot be known.
    """
    values = statistic.values("prompt", history, kind)
    if not values:
        return None
    offset = max(values, key=lambda one: values[one])
    agreed = _share(values, offset) >= _MOST and offset in PROMPT_OFFSETS
    enough = offset == 0 or sum(values.values()) >= _FEWEST[0]
    return offset if agreed and enough else None


UNKNOWN = Learned(habit=GUESS, knows_text=False, knows_calls=False)
"""What is known of a host that never answered before."""
