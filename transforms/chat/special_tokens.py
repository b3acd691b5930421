"""Checks a sample's special ids against the grammar, and its prompt against the count."""

from transforms.chat.habits import Habit
from transforms.chat.profile import ModelProfile, all_special_ids
from transforms.chat.settings import thinking_is_off
from transforms.codes import IssueCode
from transforms.records import Exchange, Issue, Sample


def find_issues(sample: Sample, profile: ModelProfile, habit: Habit) -> tuple[Issue, ...]:
    """All that speaks against the sample; a total function, it never raises."""
    return (
        *sample.issues,
        *_prompt_issues(sample, habit),
        *_prefill_issues(sample, profile, habit),
        *_marker_issues(sample, profile),
    )


def counted_prompt(exchange: Exchange, habit: Habit) -> int | None:
    """The prompt's tokens by the host's count; `None`: it is not there, or its meaning unknown."""
    usage = exchange.completion.usage
    counted = usage.prompt_tokens if usage else None
    offset = habit.offset_of_prompt(tools=bool(exchange.prompt.tools))
    return None if counted is None or offset is None else counted - offset


def is_prompt_counted(exchange: Exchange, habit: Habit) -> bool:
    """Whether the host's count of the prompt is there, and what it means is known."""
    return counted_prompt(exchange, habit) is not None


def _prompt_issues(sample: Sample, habit: Habit) -> tuple[Issue, ...]:
    """The prompt's ids against the host's count of them; a server's own ids need none."""
    counted = counted_prompt(sample.exchange, habit)
    is_told = sample.exchange.completion.prompt_token_ids is not None
    if counted is None or is_told or counted == sample.prompt_length:
        return ()
    residual = counted - sample.prompt_length
    detail = f"{counted} prompt tokens counted, {sample.prompt_length} rendered"
    if abs(residual) == 1 and thinking_is_off(sample.exchange.settings):
        return (Issue(IssueCode.MODE_MISMATCH, f"{detail}: the thought was opened otherwise"),)
    return (Issue(IssueCode.PROMPT_MISMATCH, detail),)


def _prefill_issues(sample: Sample, profile: ModelProfile, habit: Habit) -> tuple[Issue, ...]:
    """The special tokens among the prompt's last pieces must be the ones of the profile."""
    wanted = [
        profile.special_tokens[piece]
        for piece in (_ending(sample, profile) if habit.prefills else ())
        if piece in profile.special_tokens
    ]
    special = all_special_ids(profile)
    prompt = sample.input_ids[: sample.prompt_length]
    found = [number for number in prompt if number in special][-len(wanted) :]
    if not wanted or found == wanted:
        return ()
    detail = f"the prompt's last special ids are {found}, the template ends in {wanted}"
    return (Issue(IssueCode.PREFILL_MISSING, detail, sample.prompt_length - 1),)


def _ending(sample: Sample, profile: ModelProfile) -> tuple[str, ...]:
    is_off = thinking_is_off(sample.exchange.settings)
    return profile.prompt.ends_with_off if is_off else profile.prompt.ends_with


def _marker_issues(sample: Sample, profile: ModelProfile) -> tuple[Issue, ...]:
    """Every special id of the sampled part: inserted by the grammar, and in its order."""
    special = all_special_ids(profile)
    inserted = set(sample.special_positions)
    issues = []
    expected = _Expected(profile)
    for position in range(sample.prompt_length, len(sample.input_ids)):
        number = sample.input_ids[position]
        if number not in special:
            continue
        if position not in inserted or not expected.accept(number):
            detail = f"id {number} at {position} is not what the grammar has there"
            issues.append(Issue(IssueCode.SPECIAL_TOKEN_MISPLACED, detail, position))
    if not expected.is_complete and not issues:
        last = len(sample.input_ids) - 1
        detail = "the sampled ids do not end in the end token"
        issues.append(Issue(IssueCode.SPECIAL_TOKEN_MISPLACED, detail, last))
    return tuple(issues)


class _Expected:
    """Which marker may come next: `[begin] [end]* [section]* end`, a section being calls.

    What the model may leave out or write twice (`candidates`) is allowed; another order is not.
    """

    def __init__(self, profile: ModelProfile) -> None:
        ids = profile.special_tokens
        grammar = profile.answer
        self._end = ids[grammar.end]
        begin = {self._end}
        self._next: dict[int | None, set[int]] = {}
        if grammar.tools is not None:
            section, call, argument, closed, done = (ids[mark] for mark in grammar.tools.markers)
            begin.add(section)
            self._next |= {section: {call, done}, call: {argument}, argument: {closed}}
            self._next |= {closed: {call, done, self._end}, done: {section, self._end}}
        thought = begin
        if grammar.thought_end is not None:
            closing = ids[grammar.thought_end]
            thought = {closing, *begin}
            self._next[closing] = thought
        if grammar.thought_begin is not None:
            self._next[ids[grammar.thought_begin]] = thought
            thought = {ids[grammar.thought_begin], *thought}
        self._next[None] = thought
        self._last: int | None = None

    def accept(self, number: int) -> bool:
        fits = number in self._next.get(self._last, set())
        self._last = number
        return fits

    @property
    def is_complete(self) -> bool:
        return self._last == self._end
