"""The two graphs, each as it is drawn in the README."""

import apache_beam as beam

from pipeline.options import RunConfig
from transforms.call_openrouter import CallOpenRouter
from transforms.chat.habits_file import Habits
from transforms.observe import CountFailures, Observe
from transforms.partition import PartitionByVerdict
from transforms.read_prompts import ReadPrompts
from transforms.reconstruct import Reconstruct
from transforms.tokenize import Tokenize
from transforms.validate_special_tokens import ValidateSpecialTokens
from transforms.write import (
    WriteCounts,
    WriteFailureCounts,
    WriteObserved,
    WriteRejections,
    WriteSamples,
)


def collect(pipeline: beam.Pipeline, config: RunConfig, folder: str) -> None:
    """Job 1: every prompt is asked, and what the providers do to counts is learned."""
    prompts = pipeline | ReadPrompts(config.files, spread=config.spread, settings=config.reading)
    exchanges = prompts.good | CallOpenRouter(
        config.call, config.sampling, config.profile, config.reading.max_tokens
    )
    observed = exchanges.good | Observe(config.profile)

    _ = observed | WriteObserved(folder)
    _ = exchanges.failures | CountFailures() | WriteFailureCounts(folder)
    _ = prompts.counts | WriteCounts(folder)


def build(pipeline: beam.Pipeline, config: RunConfig, habits: Habits, folder: str) -> None:
    """Job 2: every answer is in the store; nothing is sent."""
    call = config.call_from_store
    prompts = pipeline | ReadPrompts(config.files, spread=config.spread, settings=config.reading)
    exchanges = prompts.good | CallOpenRouter(
        call, config.sampling, config.profile, config.reading.max_tokens
    )
    renderings = exchanges.good | Reconstruct(config.profile, habits)
    samples = renderings.good | Tokenize(config.profile, habits)
    verdicts = samples.good | ValidateSpecialTokens(config.profile, habits, config.min_evidence)
    good, bad = verdicts.good | PartitionByVerdict()

    _ = good | WriteSamples(folder, config.formats, config.profile, config.loss_mask)
    _ = bad | "WriteBad" >> WriteRejections(folder, "bad")
    _ = prompts.failures | "WriteUnread" >> WriteRejections(folder, "read")
    _ = exchanges.failures | "WriteUncalled" >> WriteRejections(folder, "call")
    _ = renderings.failures | "WriteUnreconstructed" >> WriteRejections(folder, "reconstruct")
    _ = samples.failures | "WriteUntokenized" >> WriteRejections(folder, "tokenize")
    _ = verdicts.failures | "WriteUnvalidated" >> WriteRejections(folder, "validate")
    _ = prompts.counts | WriteCounts(folder)
