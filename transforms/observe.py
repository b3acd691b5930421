"""Observe: what each provider's counts say about it, before any one answer is judged."""

from collections.abc import Iterable
from dataclasses import replace

import apache_beam as beam
from apache_beam.pvalue import PCollection

from transforms.chat.grammar import is_truncated
from transforms.chat.habits import stratum_of
from transforms.chat.profile import ModelProfile
from transforms.chat.residuals import Residuals, Stratum, merge_residuals
from transforms.chat.special_tokens import count_residual
from transforms.failures import Failure, RecordError
from transforms.reconstruct import reconstruct
from transforms.records import Exchange, FailureCount
from transforms.tokenize import tokenize

Observed = tuple[Stratum, Residuals]


class Observe(beam.PTransform):
    """Residuals of every (provider, model), merged to one small value each."""

    def __init__(self, profile: ModelProfile) -> None:
        super().__init__()
        self._profile = profile

    def expand(self, exchanges: PCollection[Exchange]) -> PCollection[Observed]:
        return (
            exchanges
            | beam.FlatMap(observe, profile=self._profile).with_output_types(Observed)
            | beam.CombinePerKey(_MergeFn())
        )


class CountFailures(beam.PTransform):
    """How many prompts failed with each kind: the reason of a stop is one of them."""

    def expand(self, failures: PCollection[Failure]) -> PCollection[FailureCount]:
        return (
            failures
            | beam.Map(_by_kind).with_output_types(tuple[str, FailureCount])
            | beam.CombinePerKey(_add_counts)
            | beam.Values()
        )


def _by_kind(failure: Failure) -> tuple[str, FailureCount]:
    return failure.kind.value, FailureCount(failure.kind.value, 1, failure.detail)


def _add_counts(counts: Iterable[FailureCount]) -> FailureCount:
    *others, last = counts
    return replace(last, count=sum(count.count for count in others) + last.count)


def observe(exchange: Exchange, profile: ModelProfile) -> tuple[Observed, ...]:
    """One answer's residual; nothing for an answer that says nothing about its provider."""
    if is_truncated(exchange):
        return ()
    try:
        sample = tokenize(reconstruct(exchange, profile), profile)
    except RecordError:
        return ()  # job 2 says why
    residual = count_residual(sample)
    if residual is None:
        return ()
    return ((stratum_of(exchange.completion), Residuals(((residual, 1),))),)


class _MergeFn(beam.CombineFn):
    def create_accumulator(self) -> Residuals:
        return Residuals()

    def add_input(self, accumulator: Residuals, residuals: Residuals) -> Residuals:
        return merge_residuals((accumulator, residuals))

    def merge_accumulators(self, accumulators: Iterable[Residuals]) -> Residuals:
        return merge_residuals(accumulators)

    def extract_output(self, accumulator: Residuals) -> Residuals:
        return accumulator
