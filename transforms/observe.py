"""Observe: what each provider's counts say about it, before any one answer is judged."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import apache_beam as beam
from apache_beam.pvalue import PCollection

from transforms.chat.fits import Fits
from transforms.chat.habits import Stratum, stratum_of
from transforms.chat.profile import ModelProfile
from transforms.chat.prompt_ids import with_parsed_arguments
from transforms.chat.render import render_prompt
from transforms.chat.settings import thinking_is_off
from transforms.chat.statistic import HISTORIES, Key, Statistic, observe_answer
from transforms.counts import FailureCount
from transforms.failures import Failure, RecordError
from transforms.openrouter.loop import ClientLoop
from transforms.records import Exchange

Observed = tuple[Stratum, Statistic]


class Observe(beam.PTransform):
    """What every (provider, model) does to answers, merged to one small value each."""

    def __init__(self, profile: ModelProfile) -> None:
        super().__init__()
        self._profile = profile

    def expand(self, exchanges: PCollection[Exchange]) -> PCollection[Observed]:
        return (
            exchanges
            | beam.ParDo(_ObserveFn(self._profile)).with_output_types(Observed)
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
    """One answer's statistic; nothing for an answer that says nothing about its provider.

    An answer that was judged bad and comes again is one of a choice: among such alone, what is
    wrong with all of them would be a habit of their host.
    """
    completion = exchange.completion
    is_chosen = completion.generation_id and completion.generation_id == exchange.prompt.judged_bad
    if not completion.provider or is_chosen:
        return ()
    try:
        statistic = observe_answer(exchange, profile, _prompt_lengths(exchange, profile))
    except RecordError:
        return ()  # job 2 says why
    return ((stratum_of(exchange.completion), statistic),) if statistic.counts else ()


class _ObserveFn(beam.DoFn):
    """`observe`; the progress line is told how many answers fit so far."""

    def __init__(self, profile: ModelProfile) -> None:
        self._profile = profile

    def setup(self) -> None:
        self._fits = Fits()

    def process(self, exchange: Exchange) -> Iterator[Observed]:
        for stratum, statistic in observe(exchange, self._profile):
            self._fits.add(stratum, statistic)
            ClientLoop.tell_good(self._fits.good)
            yield stratum, statistic


def _prompt_lengths(exchange: Exchange, profile: ModelProfile) -> dict[str, int]:
    """Tokens of the prompt, with the thoughts of earlier turns and without.

    None where its arguments may have been written anew: what that adds is not the host's own.
    """
    if with_parsed_arguments(exchange.prompt) != exchange.prompt:
        return {}
    thinks = not thinking_is_off(exchange.settings)
    kept = len(render_prompt(exchange.prompt, profile, thinks=thinks))
    if not any(message.reasoning for message in exchange.prompt.messages):
        return dict.fromkeys(HISTORIES, kept)
    dropped = render_prompt(exchange.prompt, profile, thinks=thinks, keeps_history=False)
    return {"kept": kept, "dropped": len(dropped)}


_Counts = Counter[tuple[Key, int]]


class _MergeFn(beam.CombineFn):
    """Adds up in place: a host's counters are some thousands, an answer's a few."""

    def create_accumulator(self) -> _Counts:
        return Counter()

    def add_input(self, accumulator: _Counts, statistic: Statistic) -> _Counts:
        accumulator.update(statistic.counter())
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_Counts]) -> _Counts:
        return sum(accumulators, Counter())

    def extract_output(self, accumulator: _Counts) -> Statistic:
        return Statistic.of(accumulator)
