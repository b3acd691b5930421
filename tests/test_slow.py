"""Readers that are too heavy for the default run: TensorFlow (600 MB installed)."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.programs import Server, example_prompts, run_pipeline, samples, write_prompts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="make test-slow installs it"),
]

# A process of its own: TensorFlow and PyPI tfrecord both register the proto file of Example.
READ = """
import json, sys
import tensorflow as tf
features = {
    "id": tf.io.FixedLenFeature([], tf.string),
    "input_ids": tf.io.VarLenFeature(tf.int64),
    "prompt_length": tf.io.FixedLenFeature([], tf.int64),
    "generation_id": tf.io.FixedLenFeature([], tf.string),
    "hidden_drift": tf.io.FixedLenFeature([], tf.float32),
    "repairs": tf.io.VarLenFeature(tf.string),
}
for record in tf.data.TFRecordDataset(sys.argv[1:]):
    row = tf.io.parse_single_example(record, features)
    ids = tf.sparse.to_dense(row["input_ids"]).numpy().tolist()
    texts = [row[name].numpy().decode() for name in ("id", "generation_id")]
    print(json.dumps([*texts, int(row["prompt_length"].numpy()), ids]))
"""


def test_tf_data_reads_the_samples_as_they_were_sampled(tmp_path: Path, simulator: Server) -> None:
    write_prompts(tmp_path, example_prompts(60))
    assert run_pipeline(tmp_path, simulator.base_url).returncode == 0
    files = [str(path) for path in (tmp_path / "out" / "samples").glob("*.tfrecord")]
    done = subprocess.run(
        [sys.executable, "-c", READ, *files], capture_output=True, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    truth = simulator.truth()
    assert all(ids == truth[generation] for _, generation, _, ids in rows)
    good = samples(tmp_path / "out")
    assert {identity: (ids, length) for identity, _, length, ids in rows} == {
        identity: (row["input_ids"], row["prompt_length"]) for identity, row in good.items()
    }
    assert len(rows) == 60
