"""Readers that are too heavy for the default run: TensorFlow (600 MB installed)."""

from pathlib import Path

import pytest

from tests.programs import Server, example_prompts, run_pipeline, samples, write_prompts
from transforms.encoding.columns import SCHEMA

pytestmark = pytest.mark.slow


def test_tf_data_reads_the_samples_as_they_were_sampled(tmp_path: Path, simulator: Server) -> None:
    tf = pytest.importorskip("tensorflow")
    write_prompts(tmp_path, example_prompts(60))
    assert run_pipeline(tmp_path, simulator.base_url).returncode == 0
    files = [str(path) for path in (tmp_path / "out" / "samples").glob("*.tfrecord")]
    features = {
        "id": tf.io.FixedLenFeature([], tf.string),
        "input_ids": tf.io.VarLenFeature(tf.int64),
        "prompt_length": tf.io.FixedLenFeature([], tf.int64),
        "generation_id": tf.io.FixedLenFeature([], tf.string),
        "hidden_drift": tf.io.FixedLenFeature([], tf.float32),
        "repairs": tf.io.VarLenFeature(tf.string),
    }
    assert set(features) <= set(SCHEMA.names)
    truth = simulator.truth()
    read = {}
    for record in tf.data.TFRecordDataset(files):
        row = tf.io.parse_single_example(record, features)
        ids = tf.sparse.to_dense(row["input_ids"]).numpy().tolist()
        assert ids == truth[row["generation_id"].numpy().decode()]
        read[row["id"].numpy().decode()] = (ids, int(row["prompt_length"].numpy()))
    good = samples(tmp_path / "out")
    assert read == {i: (row["input_ids"], row["prompt_length"]) for i, row in good.items()}
