"""ValidateSpecialTokens: every special id at its place, as many ids as were counted."""

import apache_beam as beam
from apache_beam.pvalue import PCollection

from transforms.chat.habits import Habits, stratum_of
from transforms.chat.profile import ModelProfile
from transforms.chat.special_tokens import count_residual, find_issues
from transforms.failures import Stage
from transforms.outcome import MapOrFail, Outcome
from transforms.records import Evidence, Issue, IssueCode, Sample, Verdict


class ValidateSpecialTokens(beam.PTransform):
    """Judges each sample; see `validate_special_tokens`."""

    def __init__(self, profile: ModelProfile, habits: Habits, min_evidence: Evidence) -> None:
        super().__init__()
        self._values = {"profile": profile, "habits": habits, "min_evidence": min_evidence}

    def expand(self, samples: PCollection[Sample]) -> Outcome[Verdict]:
        return samples | MapOrFail(Stage.VALIDATE, validate_special_tokens, **self._values)


def validate_special_tokens(
    sample: Sample, profile: ModelProfile, habits: Habits, min_evidence: Evidence
) -> Verdict:
    """The sample with all its issues and its class of evidence.

    A count that fits is `B2`: some drift keeps the count, and its estimated share is written in
    the row. Without a count, or with one that does not fit, nothing is proved: `C`.
    """
    issues = find_issues(sample, profile)
    residual = count_residual(sample)
    evidence = Evidence.B2 if residual == 0 else Evidence.C
    if not issues and evidence > min_evidence:
        detail = f"evidence {evidence}, --min_evidence {min_evidence}"
        issues = (Issue(IssueCode.EVIDENCE_TOO_WEAK, detail),)
    return Verdict(
        sample=sample,
        issues=issues,
        residual=residual,
        evidence=evidence,
        hidden_drift=habits.hidden_drift(stratum_of(sample.exchange.completion)),
        profile=profile.name,
    )
