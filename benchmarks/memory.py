"""Peak memory of both jobs by the number of prompts: it must not grow with them.

`python -m benchmarks.memory [--sizes 1000,10000,100000] [--in_flight 64]`

Answers are small (1.4 KB) and come at once, so that what grows is kept by prompt, not by byte.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.serving import ROOT, serving


def main(argv: list[str]) -> int:
    """Prints a line a size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--in_flight", type=int, default=64)
    flags = parser.parse_args(argv)
    print("prompts   collect MB   seconds   build MB   seconds")
    with (
        serving("benchmarks.waiting_server", "--latency_s", "0.01") as base_url,
        tempfile.TemporaryDirectory() as folder,
    ):
        for size in map(int, flags.sizes.split(",")):
            path = Path(folder) / f"{size}.jsonl"
            lines = (f'{{"prompt": "Question {n}"}}\n' for n in range(size))
            path.write_text("".join(lines), "utf-8")
            cells = [_peak(job, base_url, path, flags.in_flight) for job in ("collect", "build")]
            told = "".join(f"{megabytes:13.0f}{seconds:10.0f}" for megabytes, seconds in cells)
            print(f"{size:<7}{told}", flush=True)
    return 0


def _peak(job: str, base_url: str, prompts: Path, in_flight: int) -> tuple[float, float]:
    """Highest resident MB of the program, and its seconds."""
    command = [
        sys.executable, "-m", "pipeline.main", "--job", job, "--source", "openai",
        "--api_key", "none", "--base_url", base_url, "--input", str(prompts),
        "--output", str(prompts.with_suffix(".out")), "--max_in_flight", str(in_flight),
    ]  # fmt: skip
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{job} ended with {process.returncode}")
    return usage.ru_maxrss / 1024, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
