"""Trainers' own readers open an output: ids equal to ours on every row, masks of their dialect.

Slow: the readers want torch (5 GB); `make test-slow` puts them into a Python of their own.
TorchSpec is not among them: PyPI has a placeholder of that name.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

from tests.programs import ROOT, Server, example_prompts, run_pipeline, samples, write_prompts
from transforms.chat.carriers import find_files
from transforms.chat.profile import ModelProfile, all_special_ids, all_special_tokens
from transforms.encoding.formats import FORMATS
from transforms.encoding.loss_mask import Masking
from transforms.write import thought_ids

PYTHON = Path(os.environ.get("TRAINERS_PYTHON", ROOT / ".trainers" / "bin" / "python"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="make test-slow installs the trainers"),
]
Rows = list[tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def tokenizer(kimi: ModelProfile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kimi's tokenizer as the library that trainers use has it."""
    spec = kimi.tokenizer
    ranks = TikTokenConverter(str(find_files(spec) / spec.file), pattern="|".join(spec.pattern))
    special = sorted(all_special_tokens(kimi).items(), key=lambda item: item[1])
    ranks.extra_special_tokens = [literal for literal, _ in special]
    folder = tmp_path_factory.mktemp("tokenizer")
    ends = {"eos_token": "<|im_end|>", "pad_token": "[PAD]"}
    made = PreTrainedTokenizerFast(tokenizer_object=ranks.converted(), **ends)
    made.save_pretrained(folder)
    assert {literal: made.convert_tokens_to_ids(literal) for literal, _ in special} == dict(special)
    return folder


@pytest.fixture
def read(tmp_path: Path, simulator: Server, tokenizer: Path) -> Callable[[str], Rows]:
    """Makes an output in every format; gives what a reader makes of it."""
    write_prompts(tmp_path, example_prompts(120))
    more = ("--formats", ",".join(FORMATS), "--draft_vocab_size", "4096")
    done = run_pipeline(tmp_path, simulator.base_url, *more)
    assert done.returncode == 0, done.stderr

    def by(reader: str) -> Rows:
        result = tmp_path / "result.json"
        script = str(ROOT / "tests" / "trainers" / "read.py")
        places = [str(tmp_path / "out"), str(tokenizer), str(result)]
        done = subprocess.run(
            [PYTHON, script, reader, *places], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        rows: Rows = [(ids, mask) for ids, mask in json.loads(result.read_text("utf-8"))]
        return rows

    return by


@pytest.mark.parametrize(
    ("reader", "dialect"),
    [
        ("specforge", "exact"),
        ("specforge_text", "specforge"),
        ("speculators", "speculators"),
        ("speculators_arrow", "speculators"),
        ("nemo", "nemo"),
        ("modelopt", "exact"),
    ],
)
def test_ids_and_masks_are_ours(
    read: Callable[[str], Rows], reader: str, dialect: str, tmp_path: Path, kimi: ModelProfile
) -> None:
    found = read(reader)
    good = samples(tmp_path / "out").values()
    masking = Masking(dialect, thought_ids(kimi))
    wanted = [(row["input_ids"], _mask(masking, row)) for row in good]
    assert len(wanted) == 120
    assert sorted(found) == sorted(wanted)


def _mask(masking: Masking, row: dict[str, Any]) -> list[int]:
    mask: list[int] = masking(np.array(row["input_ids"]), row["prompt_length"]).tolist()
    return mask


def test_frequencies_and_maps_are_loaded(
    read: Callable[[str], Rows], tmp_path: Path, kimi: ModelProfile
) -> None:
    (ids, counts), theirs, ours = read("maps")
    trained = [
        number
        for row in samples(tmp_path / "out").values()
        for number in row["input_ids"][row["prompt_length"] :]
    ]
    assert dict(zip(ids, counts, strict=True)) == {n: trained.count(n) for n in set(trained)}
    assert theirs == ours
    d2t, t2d = ours
    chosen = [place + offset for place, offset in enumerate(d2t)]
    assert chosen == [number for number, there in enumerate(t2d) if there]
    assert len(chosen) == 4096
    assert set(chosen) >= set(trained) | all_special_ids(kimi)
