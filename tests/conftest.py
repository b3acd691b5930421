"""Fixtures: profiles, tokenizers, the simulator, the recorded data beside the checkout."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.programs import Server, serve_simulator
from transforms.chat.profile import ModelProfile, load_profile
from transforms.chat.tokens import Tokenizer, load_tokenizer

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
