"""Seconds and peak memory of writing samples in each format, by WriteSamples in a process each.

`python -m benchmarks.formats [--rows 300000] [--tokens 300] [--formats parquet,jsonl,…]`

Every row has its own text of so many tokens, cut out of one long list of words; `base` makes the
rows and counts their ids, and writes none; `all` writes every format at once.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks.serving import ROOT
from tests import build
from transforms.chat.profile import load_profile
from transforms.chat.tokens import load_tokenizer
from transforms.codes import Evidence
from transforms.encoding.formats import FORMATS
from transforms.records import Sample, Verdict
from transforms.write import WriteSamples


def main(argv: list[str]) -> int:
    """Prints a line a format."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--formats", default=",".join(["base", *FORMATS, "all"]))
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    flags = parser.parse_args(argv)
    if flags.inside:
        _write(flags.inside, flags.formats, flags.rows, flags.tokens)
        return 0
    print(f"{'format':<15}seconds  CPU s  peak MB   MB on disk  parts", flush=True)
    for name in flags.formats.split(","):
        print(f"{name:<15}{_measure(name, flags.rows, flags.tokens)}", flush=True)
    return 0


def _measure(name: str, rows: int, tokens: int) -> str:
    """Of a process of its own, its start-up included."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        command = [sys.executable, "-m", "benchmarks.formats", "--inside", folder]
        sizes = ["--formats", name, "--rows", str(rows), "--tokens", str(tokens)]
        began = time.monotonic()
        process = subprocess.Popen([*command, *sizes], cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        if process.returncode:
            raise RuntimeError(f"{name} ended with {process.returncode}")
        parts = [part for form in _formats(name) for part in _parts(form, folder, rows)]
        size = sum(path.stat().st_size for path in parts) / 1e6
        cpu = usage.ru_utime + usage.ru_stime
        peak = usage.ru_maxrss / 1024
        return f"{seconds:7.0f}{cpu:7.0f}{peak:9.0f}{size:13.0f}{len(parts):7}"


def _formats(name: str) -> tuple[str, ...]:
    return {"base": (), "all": tuple(FORMATS)}.get(name, (name,))


def _parts(name: str, folder: str, rows: int) -> list[Path]:
    """Its files, every row counted."""
    parts = FORMATS[name].parts(Path(folder))
    if (written := sum(map(FORMATS[name].count, parts))) != rows:
        raise RuntimeError(f"{written} rows in {name}, {rows} were made")
    return parts


def _write(folder: str, name: str, rows: int, tokens: int) -> None:
    options = PipelineOptions(["--runner=FnApiRunner"])
    with beam.Pipeline(options=options) as pipeline:
        made = pipeline | beam.Create([(rows, tokens)]) | beam.FlatMap(_verdicts)
        _ = made | WriteSamples(folder, _formats(name), load_profile("kimi-k2.5"))


def _verdicts(size: tuple[int, int]) -> Iterator[Verdict]:
    """Samples of words with a blank before each: their ids are those of the text."""
    rows, tokens = size
    profile = load_profile("kimi-k2.5")
    tokenizer = load_tokenizer(profile)
    marks = profile.special_tokens
    prompt = [marks["<|im_user|>"], *tokenizer.encode("user"), marks["<|im_middle|>"]]
    prompt += [*tokenizer.encode("What is it?"), marks["<|im_end|>"], marks["<|im_assistant|>"]]
    prompt += [*tokenizer.encode("assistant"), marks["<|im_middle|>"], marks["<think>"]]
    pieces = [(n, tokenizer.decode([n])) for n in range(1000, 60_000)]
    words = [(n, text) for n, text in pieces if re.fullmatch(" [a-z]+", text)]
    choose = np.random.default_rng(3)
    for number in range(rows):
        chosen = [words[n] for n in choose.integers(0, len(words), tokens)]
        ids = (*prompt, *(n for n, _ in chosen), marks["</think>"], marks["<|im_end|>"])
        text = "".join(word for _, word in chosen) + "</think><|im_end|>"
        yield _verdict(f"row-{number}", ids, len(prompt), text)


def _verdict(name: str, ids: tuple[int, ...], length: int, text: str) -> Verdict:
    answer = build.completion(text, tokens=len(ids) - length)
    sample = Sample(
        exchange=build.exchange(answer, build.prompt(id=name)),
        input_ids=ids,
        prompt_length=length,
        special_positions=(),
        text=text,
        residual=0,
        evidence=Evidence.B2,
        repairs=(),
        issues=(),
    )
    return Verdict(
        sample=sample, issues=(), evidence=Evidence.B2, hidden_drift=0.0, profile="kimi-k2.5"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
