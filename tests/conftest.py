"""Fixtures: profiles, tokenizers, the simulator, the recorded data beside the checkout."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.buckets import make_bucket, serve_buckets
from tests.programs import Server, serve_simulator
from transforms.chat.profile import ModelProfile, load_profile
from transforms.chat.tokens import Tokenizer, load_tokenizer

# Machines are shared: how long an example takes says nothing (the first text alone makes Hypothesis
# read all of Unicode, 1 s).
settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def kimi() -> ModelProfile:
    return load_profile("kimi-k2.5")


@pytest.fixture(scope="session")
def kimi_tokenizer(kimi: ModelProfile) -> Tokenizer:
    return load_tokenizer(kimi)


@pytest.fixture(scope="session")
def smollm2() -> ModelProfile:
    return load_profile("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """The path of a recorded file; skips where the recorded data is not beside the checkout."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"recorded data {name} is not beside this checkout ({SHARED})")
        return path

    return find


@pytest.fixture
def simulator() -> Iterator[Server]:
    with serve_simulator() as server:
        yield server


@pytest.fixture(scope="session")
def buckets() -> Iterator[Callable[[], str]]:
    """Makes buckets on loopback, for this process and those that it starts."""
    with serve_buckets() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", address)
        yield make_bucket


@pytest.fixture
def bucket(buckets: Callable[[], str]) -> str:
    """A new bucket's name."""
    return buckets()


@pytest.fixture(scope="session", params=["sqlite", "gcs"])
def new_location(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """Places for new response stores: each kind that there is."""
    if request.param == "sqlite":
        return lambda: str(tmp_path_factory.mktemp("store"))
    new_bucket = request.getfixturevalue("buckets")
    return lambda: f"gs://{new_bucket()}/answers"
