"""Checks a sample's special ids against the grammar, and its length against the count."""

from transforms.chat.profile import ModelProfile, all_special_ids
from transforms.records import Issue, IssueCode, Sample


def find_issues(sample: Sample, profile: ModelProfile) -> tuple[Issue, ...]:
    """All that speaks against the sample; a total function, it never raises."""
    return (
        *sample.issues,
        *_prefill_issues(sample, profile),
        *_marker_issues(sample, profile),
        *_count_issues(sample),
    )


def count_residual(sample: Sample) -> int | None:
    """`usage.completion_tokens` less the sampled ids: 0 fits, above it text is missing."""
    usage = sample.exchange.completion.usage
    if usage is None:
        return None
    return usage.completion_tokens - (len(sample.input_ids) - sample.prompt_length)


def _count_issues(sample: Sample) -> tuple[Issue, ...]:
    residual = count_residual(sample)
    if residual is None:
        return (Issue(IssueCode.USAGE_MISSING, "no usage came with the answer"),)
    if residual == 0:
        return ()
    rebuilt = len(sample.input_ids) - sample.prompt_length
    detail = f"{rebuilt + residual} tokens counted, {rebuilt} ids rebuilt"
    return (Issue(IssueCode.COUNT_MISMATCH, detail),)


def _prefill_issues(sample: Sample, profile: ModelProfile) -> tuple[Issue, ...]:
    """The special tokens among the prompt's last pieces must be the ones of the profile."""
    wanted = [
        profile.special_tokens[piece]
        for piece in profile.prompt.ends_with
        if piece in profile.special_tokens
    ]
    special = all_special_ids(profile)
    prompt = sample.input_ids[: sample.prompt_length]
    found = [number for number in prompt if number in special][-len(wanted) :]
    if not wanted or found == wanted:
        return ()
    detail = f"the prompt's last special ids are {found}, the template ends in {wanted}"
    return (Issue(IssueCode.PREFILL_MISSING, detail, sample.prompt_length - 1),)


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
    """Which marker may come next: `[thought_end] [section] end`, a section being calls."""

    def __init__(self, profile: ModelProfile) -> None:
        ids = profile.special_tokens
        grammar = profile.answer
        self._end = ids[grammar.end]
        self._next: dict[int | None, set[int]] = {}
        begin = {self._end}
        if grammar.tools is not None:
            section, call, argument, closed, done = (ids[mark] for mark in grammar.tools.markers)
            begin.add(section)
            self._next |= {section: {call}, call: {argument}, argument: {closed}}
            self._next |= {closed: {call, done}, done: {self._end}}
        if grammar.thought_end is not None:
            thought = ids[grammar.thought_end]
            self._next |= {None: {thought}, thought: begin}
        else:
            self._next[None] = begin
        self._last: int | None = None

    def accept(self, number: int) -> bool:
        fits = number in self._next.get(self._last, set())
        self._last = number
        return fits

    @property
    def is_complete(self) -> bool:
        return self._last == self._end
