"""`make demo`: two runs without a key, each compared with what was really sampled.

(a) SmolLM2-135M, a real model on this machine; (b) Kimi-K2.5 from the simulator, with thoughts
and tool calls. Both are ordinary commands, printed before they run.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "demo-output"


def main() -> int:
    """Runs both, prints what was compared; 0 if every comparison holds."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"  # it says at every start that torch is missing
    shutil.rmtree(OUTPUT, ignore_errors=True)
    print("(a) SmolLM2-135M, a real model, served on this machine\n", flush=True)
    with _serve("examples.smollm2_server") as base_url:
        smollm2 = _run(
            "smollm2", base_url,
            "--profile", "smollm2-135m-instruct", "--source", "openai", "--api_key", "none",
            "--max_tokens", "64", "--max_in_flight", "4", "--temperature", "1.0", "--seed", "7",
            "--max_bad_ratio", "1",
        )  # fmt: skip
        engine_holds = _compare_with_engine(smollm2, base_url)
    print("\n(b) Kimi-K2.5 from the simulator\n", flush=True)
    # The simulator takes any key.
    os.environ["OPENROUTER_API_KEY"] = "sk-or-v1-demonstration"
    with _serve("simulator", "--port", "0", "--seed", "1") as base_url:
        kimi = _run("kimi", base_url)
        simulator_holds = _compare_with_truth(kimi, base_url)
    print(f"\noutputs: {_shown(smollm2)}, {_shown(kimi)}")
    print(f"a sample with tool calls:\n  {_show_command(kimi)}")
    return 0 if engine_holds and simulator_holds else 1


@contextlib.contextmanager
def _serve(module: str, *arguments: str) -> Iterator[str]:
    """Starts a server program; its first line of output is its base URL."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    ) as server:
        if server.stdout is None:
            raise RuntimeError("no pipe to the server")
        base_url = server.stdout.readline().strip()
        if not base_url:
            raise RuntimeError(f"{shlex.join(command)} did not start: run it to see why")
        try:
            yield base_url
        finally:
            server.kill()


def _run(name: str, base_url: str, *arguments: str) -> Path:
    output = OUTPUT / name
    command = [
        "-m", "pipeline.main", "--runner", "DirectRunner", "--input", f"examples/{name}.jsonl",
        "--output", _shown(output), "--base_url", base_url, *arguments,
    ]  # fmt: skip
    print(f"$ python {shlex.join(command)}", flush=True)
    subprocess.run([sys.executable, *command], check=True, cwd=ROOT)
    return output


def _samples(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted((output / "samples").glob("part-*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return rows


def _compare_with_engine(output: Path, base_url: str) -> bool:
    """Good rows against the ids that llama.cpp says it sampled, which the server keeps."""
    truth = _told(f"{base_url.removesuffix('/v1')}/__truth")
    told = [(row, truth[row["generation_id"]]["ids"]) for row in _samples(output)]
    samples = [row for row, sampled in told if sampled]
    drifted: Counter[str] = Counter()
    for row, sampled in told:
        is_other = row["input_ids"][row["prompt_length"] :] != sampled
        drifted[row["evidence"]] += bool(sampled) and is_other
    estimate = max((row["hidden_drift"] for row in samples), default=0.0)
    number = sum(drifted.values())
    print(
        f"compared with the engine: {len(samples) - number} of {len(samples)} good rows have its "
        f"ids; {number} drifted with the same count (a count cannot see it, the rows estimate "
        f"{estimate:.1%}); of {len(told) - len(samples)} more it does not tell all ids. Answers "
        f"cut at 64 tokens are rejected."
    )
    return bool(samples) and not drifted["A3"]


def _told(url: str) -> dict[str, dict[str, Any]]:
    """A server's truth by generation."""
    with urllib.request.urlopen(url) as reply:  # noqa: S310
        return {row["generation_id"]: row for row in map(json.loads, reply)}


def _compare_with_truth(output: Path, base_url: str) -> bool:
    """Good rows, prompt and answer, against what the simulator sampled."""
    truth = _told(f"{base_url.removesuffix('/api/v1')}/__sim/truth")
    samples = _samples(output)
    equal = sum(
        row["input_ids"]
        == truth[row["generation_id"]]["prompt_ids"] + truth[row["generation_id"]]["completion_ids"]
        for row in samples
    )
    summary = json.loads((output / "summary.json").read_text())
    print(
        f"compared with the truth: {equal} of {len(samples)} good rows have exactly the sampled "
        f"ids; {summary['prompts']} prompts = {summary['good']} good + {summary['bad']} bad + "
        f"{summary['failed']} failed"
    )
    if unfit := summary["codes"].get("tool_results_unfit"):
        print(
            f"{unfit} later turns are not asked: their recorded tool results are of other calls "
            "than the model made (--turns last asks them over the recorded answers)"
        )
    return bool(samples) and equal == len(samples)


def _show_command(output: Path) -> str:
    calls = (row for row in _samples(output) if row["finish_reason"] == "tool_calls")
    row = next(calls)
    return f"{_shown(Path(sys.executable))} -m pipeline.main show {_shown(output)} --id {row['id']}"


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
