"""Runs one stage on records of memory; what it made is compared whole."""

import pickle
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from transforms.openrouter.call_config import CallConfig
from transforms.openrouter.sender import Wire
from transforms.openrouter.source import OPENROUTER


def call_config(base_url: str, folder: Path, max_in_flight: int) -> CallConfig:
    """Calls of Kimi at a simulator; the key is in the environment's `TEST_KEY`."""
    return CallConfig(
        wire=Wire(
            base_url=base_url,
            api_key="env:TEST_KEY",
            model="moonshotai/kimi-k2.5",
            max_tokens=500,
            source=OPENROUTER,
        ),
        store=str(folder / "store"),
        run_id="r",
        max_in_flight=max_in_flight,
    )


def run_stage(stage: Any, records: list[Any], folder: Path) -> tuple[list[Any], list[Any]]:
    """(good, failures) of a stage that gives an Outcome."""
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        given = pipeline | beam.Create(records) if records else pipeline
        outcome = given | stage
        _ = outcome.good | "KeepGood" >> _Keep(folder / "good")
        _ = outcome.failures | "KeepFailures" >> _Keep(folder / "failures")
    return _kept(folder / "good"), _kept(folder / "failures")


class _Keep(beam.PTransform):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = str(folder)

    def expand(self, records: Any) -> None:
        _ = records | beam.Map(_keep, folder=self._folder).with_output_types(int)


def _keep(record: Any, folder: str) -> int:
    number = len(list(Path(folder).iterdir()))
    return (Path(folder) / f"{number:06d}").write_bytes(pickle.dumps(record))


def _kept(folder: Path) -> list[Any]:
    paths = sorted(folder.iterdir())
    return [pickle.loads(path.read_bytes()) for path in paths]  # noqa: S301 - our own bytes
