"""ValidateSpecialTokens: every special id at its place, in the prompt and in the answer."""

import apache_beam as beam
from apache_beam.pvalue import PCollection

from transforms.chat.habits import stratum_of
from transforms.chat.habits_file import Habits
from transforms.chat.profile import ModelProfile
from transforms.chat.residuals import estimate_hidden_drift
from transforms.chat.special_tokens import find_issues
from transforms.codes import Evidence, IssueCode
from transforms.failures import Stage
from transforms.outcome import MapOrFail, Outcome
from transforms.records import Issue, Sample, Verdict

_EXACT = frozenset({Evidence.A1, Evidence.A2, Evidence.A3})


class ValidateSpecialTokens(beam.PTransform):
    """Judges each sample; see `validate_special_tokens`."""

    def __init__(self, profile: ModelProfile, habits: Habits, min_evidence: Evidence) -> None:
        super().__init__()
        self._values = {"profile": profile, "habits": habits, "min_evidence": min_evidence}

    def expand(self, samples: PCollection[Sample]) -> Outcome[Verdict]:
        return samples | MapOrFail(Stage.VALIDATE, validate_special_tokens, **self._values)


def _says_least(issue: Issue) -> bool:
    """That nothing is known of a host is the reason only where there is no other."""
    return issue.code is IssueCode.PROVIDER_UNKNOWN


def validate_special_tokens(
    sample: Sample, profile: ModelProfile, habits: Habits, min_evidence: Evidence
) -> Verdict:
    """The sample with all its issues, its class of evidence and what that class cannot see."""
    learned = habits.of(stratum_of(sample.exchange.completion))
    found = find_issues(sample, profile, learned.habit)
    issues = tuple(sorted(found, key=_says_least))
    if not issues and sample.evidence > min_evidence:
        detail = f"evidence {sample.evidence}, --min_evidence {min_evidence}"
        issues = (Issue(IssueCode.EVIDENCE_TOO_WEAK, detail),)
    tools = profile.answer.tools
    begin = None if tools is None else profile.special_tokens[tools.section_begin]
    has_calls = begin in sample.input_ids[sample.prompt_length :]
    drift = estimate_hidden_drift(learned.residuals(calls=has_calls))
    return Verdict(
        sample=sample,
        issues=issues,
        evidence=sample.evidence,
        hidden_drift=0.0 if sample.evidence in _EXACT else drift,
        profile=profile.name,
    )
