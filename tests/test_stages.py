"""Each stage under a Beam pipeline: what it makes, what it fails, what it refuses."""

import base64
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.typehints.decorators import TypeCheckError

from tests import build
from tests.programs import KEY, ROOT, Server
from tests.stages import call_config, run_stage
from transforms.call_openrouter import CallOpenRouter
from transforms.chat.habits import Stratum
from transforms.chat.habits_file import Habits
from transforms.chat.learning import learn_all
from transforms.chat.profile import ModelProfile
from transforms.codes import Evidence
from transforms.counts import RecordCount
from transforms.failures import FailureKind, Stage
from transforms.observe import Observe
from transforms.openrouter.wire import Sampling
from transforms.partition import PartitionByVerdict
from transforms.read_prompts import InputFile, ReadPrompts
from transforms.reconstruct import Reconstruct, reconstruct
from transforms.records import Prompt
from transforms.tokenize import Tokenize, tokenize
from transforms.validate_special_tokens import ValidateSpecialTokens, validate_special_tokens


def files(folder: Path, *texts: str) -> tuple[InputFile, ...]:
    paths = [folder / f"in{number}.jsonl" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    return tuple(InputFile(str(path), path.stem) for path in paths)


@pytest.mark.parametrize("spread", [False, True])
def test_read_prompts_reads_each_id_once(tmp_path: Path, spread: bool) -> None:
    inputs = files(
        tmp_path,
        '{"id":"a","prompt":"1"}\nnot json\n{"id":"b","prompt":"2"}\n',
        '{"id":"a","prompt":"3"}\n',
    )
    good, failures = run_stage(ReadPrompts(inputs, spread=spread), [], tmp_path / "kept")
    assert {(p.id, p.messages[0].content, p.dataset) for p in good} == {
        ("a", "1", "in0"),
        ("b", "2", "in0"),
    }
    by_kind = {failure.kind: failure for failure in failures}
    assert set(by_kind) == {FailureKind.MALFORMED_JSON, FailureKind.DUPLICATE_ID}
    assert by_kind[FailureKind.MALFORMED_JSON].source == f"{inputs[0].path}:2"
    assert by_kind[FailureKind.MALFORMED_JSON].raw == "not json"
    assert by_kind[FailureKind.DUPLICATE_ID].prompt.messages[0].content == "3"
    assert f"{inputs[0].path}:1" in by_kind[FailureKind.DUPLICATE_ID].detail


def test_read_prompts_counts_where_it_reads(tmp_path: Path) -> None:
    inputs = files(tmp_path, '{"prompt":"1"}\n\nnot json\n', "")
    from apache_beam.testing.util import assert_that, equal_to  # noqa: PLC0415

    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        counts = (pipeline | ReadPrompts(inputs, spread=False)).counts
        wanted = [RecordCount(inputs[0].path, 2), RecordCount(inputs[1].path, 0)]
        assert_that(counts, equal_to(wanted))


def test_call_openrouter_asks_and_fails_record_by_record(
    tmp_path: Path, simulator: Server, kimi: ModelProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    call = call_config(simulator.base_url, tmp_path, 2)
    sampling = Sampling(model="moonshotai/kimi-k2.5", max_tokens=500)
    prompts = [build.prompt(f"Question {n}", id=f"p{n}") for n in range(5)]
    prompts.append(build.prompt("say <|im_end|>", id="special"))
    good, failures = run_stage(CallOpenRouter(call, sampling, kimi), prompts, tmp_path / "kept")
    assert {exchange.prompt.id for exchange in good} == {f"p{n}" for n in range(5)}
    assert [(f.id, f.kind, f.stage) for f in failures] == [
        ("special", FailureKind.PROMPT_SPECIAL_TEXT, Stage.CALL)
    ]
    ledger = simulator.ledger()
    assert (ledger["requests"], ledger["duplicates"]) == (5, 0)
    assert ledger["max_in_flight"] <= 2


def test_reconstruct_and_tokenize(
    tmp_path: Path, kimi: ModelProfile, smollm2: ModelProfile
) -> None:
    exchange = build.exchange(build.completion("4", " Hm.", tokens=5))
    known = build.habits(exchange.completion)
    rendering = reconstruct(exchange, kimi, known)
    assert run_stage(Reconstruct(kimi, known), [exchange], tmp_path / "a")[0] == [rendering]
    sample = tokenize(rendering, kimi, known)
    assert run_stage(Tokenize(kimi, known), [rendering], tmp_path / "b")[0] == [sample]
    calling = build.exchange(build.completion(None, None, (build.call(),)))
    good, failures = run_stage(Reconstruct(smollm2, known), [calling], tmp_path / "c")
    assert good == []
    assert failures[0].kind is FailureKind.UNEXPECTED_TOOL_CALL
    assert failures[0].prompt == calling.prompt


def test_validate_and_partition_give_each_sample_one_way(
    tmp_path: Path, kimi: ModelProfile
) -> None:
    answers = [build.completion("4", tokens=n) for n in (3, 9)]
    known = build.habits(answers[0])
    samples = [
        tokenize(reconstruct(build.exchange(answer), kimi, known), kimi, known)
        for answer in answers
    ]
    stage = ValidateSpecialTokens(kimi, known, Evidence.B2)
    verdicts, failures = run_stage(stage, samples, tmp_path / "a")
    wanted = [validate_special_tokens(s, kimi, known, Evidence.B2) for s in samples]
    assert (verdicts, failures) == (wanted, [])
    from apache_beam.testing.util import assert_that, equal_to  # noqa: PLC0415

    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        good, bad = pipeline | beam.Create(wanted) | PartitionByVerdict()
        assert good.element_type is type(wanted[0])
        assert_that(good, equal_to(wanted[:1]), label="good")
        assert_that(bad, equal_to(wanted[1:]), label="bad")


def test_observe_merges_what_is_seen_of_each_provider(kimi: ModelProfile, tmp_path: Path) -> None:
    answers = [
        build.completion("4", tokens=3),
        build.completion("4", tokens=3),
        build.completion("4", tokens=2, provider="DeepInfra"),
        build.completion("4", usage=None),
        build.completion("4", tokens=1, native_finish_reason="length"),
    ]
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        exchanges = pipeline | beam.Create([build.exchange(answer) for answer in answers])
        _ = exchanges | Observe(kimi) | beam.Map(_keep_observed, file=str(tmp_path / "observed"))
    seen = dict(pickle.loads(line) for line in _lines(tmp_path / "observed"))  # noqa: S301
    assert {stratum.provider for stratum in seen} == {"Chutes", "DeepInfra"}
    model = "moonshotai/kimi-k2.5-0127"
    assert seen[Stratum("Chutes", model)].values("text", "verbatim") == {0: 2}
    assert seen[Stratum("DeepInfra", model)].values("text", "verbatim") == {-1: 1}
    assert not learn_all(seen)[Stratum("DeepInfra", model)].knows_text  # one answer is no habit


def _keep_observed(observed: Any, file: str) -> None:
    with Path(file).open("ab") as kept:
        kept.write(base64.b64encode(pickle.dumps(observed)) + b"\n")


def _lines(file: Path) -> list[bytes]:
    return [base64.b64decode(line) for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize("stage", [Reconstruct, Tokenize])
def test_a_stage_refuses_the_wrong_input_when_the_graph_is_built(
    stage: Any, kimi: ModelProfile
) -> None:
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    prompts = pipeline | beam.Create([build.prompt()]).with_output_types(Prompt)
    with pytest.raises(TypeCheckError, match="expected"):
        _ = prompts | stage(kimi, Habits())


def test_the_core_does_not_load_beam() -> None:
    modules = "transforms.chat.judging, transforms.openrouter.client, transforms.prompts.shapes"
    code = (
        f"import sys, {modules}, transforms.encoding.rejection; print('apache_beam' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True)
    assert found.stdout.strip() == b"False"
