"""The tokenizer against published vectors, and against what must be refused."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.chat.carriers import find_files
from transforms.chat.profile import ModelProfile, TokenizerSpec
from transforms.chat.tokens import LibraryTokenizer, Tokenizer, load_tokenizer, split_long
from transforms.failures import ConfigError


def test_reproduces_every_published_vector(
    kimi_tokenizer: Tokenizer, shared: Callable[[str], Path]
) -> None:
    golden = json.loads(shared("tokenizers/kimi-k2.5/golden_vectors.json").read_text("utf-8"))
    vectors = [row for group in golden.values() if isinstance(group, list) for row in group]
    assert len(vectors) == 94
    assert [kimi_tokenizer.encode(row["text"]) for row in vectors] == [r["ids"] for r in vectors]


def test_cuts_long_texts_as_the_model_does(kimi_tokenizer: Tokenizer) -> None:
    # Measured on Moonshot's own class; for the second and the last plain tiktoken gives others.
    assert len(kimi_tokenizer.encode("a" * 25_001)) == 3_126
    assert len(kimi_tokenizer.encode(" " * 25_001)) == 100
    assert len(kimi_tokenizer.encode("🙂" * 25_001)) == 50_002
    assert len(kimi_tokenizer.encode("a " * 200_000 + "b")) == 200_002


def test_survives_a_run_that_makes_tiktoken_panic(kimi_tokenizer: Tokenizer) -> None:
    text = " " * 1_200_000
    assert kimi_tokenizer.decode(kimi_tokenizer.encode(text)) == text


def test_keeps_special_text_as_text(kimi_tokenizer: Tokenizer) -> None:
    assert kimi_tokenizer.encode("</think>") == [993, 39964, 29]
    assert kimi_tokenizer.encode("<|im_end|>") == [27, 91, 348, 11129, 91, 29]


def test_rank_file_is_the_published_one(kimi: ModelProfile) -> None:
    ranks = (find_files(kimi.tokenizer) / "tiktoken.model").read_bytes()
    assert len(ranks) == 2_795_286
    assert hashlib.sha256(ranks).hexdigest() == (
        "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103"
    )


def test_wrong_pattern_fails_at_the_start(kimi: ModelProfile) -> None:
    # cl100k's, which transformers takes without trust_remote_code: special ids come out right.
    cl100k = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    other = msgspec.structs.replace(kimi.tokenizer, pattern=(cl100k,))
    with pytest.raises(ConfigError, match="wrong class or files"):
        load_tokenizer(msgspec.structs.replace(kimi, tokenizer=other))


def test_other_vocabulary_is_refused(kimi: ModelProfile, tmp_path: Path) -> None:
    (tmp_path / "tiktoken.model").write_bytes(b"YQ== 0\n")
    other = msgspec.structs.replace(kimi.tokenizer, source=str(tmp_path))
    with pytest.raises(ConfigError, match=r"has sha256 .*, the profile wants b6c497a7"):
        load_tokenizer(msgspec.structs.replace(kimi, tokenizer=other))


def test_cached_file_that_was_damaged_is_refused(
    kimi: ModelProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = find_files(kimi.tokenizer) / "tiktoken.model"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="another vocabulary gives other ids"):
        find_files(kimi.tokenizer)


def test_repository_without_a_revision_is_refused(kimi: ModelProfile) -> None:
    other = msgspec.structs.replace(kimi.tokenizer, source="hf://moonshotai/Kimi-K2.5")
    with pytest.raises(ConfigError, match="pin a revision"):
        find_files(other)


def test_library_tokenizer_keeps_special_text_as_text(smollm2: ModelProfile) -> None:
    tokenizer = load_tokenizer(smollm2)
    assert isinstance(tokenizer, LibraryTokenizer)
    ids = tokenizer.encode("a<|im_end|>b")
    assert 2 not in ids
    assert tokenizer.decode(ids) == "a<|im_end|>b"
    assert tokenizer.decode([2]) == "<|im_end|>"


@given(st.text(alphabet="ab \n\u3000", max_size=60), st.integers(1, 7), st.integers(8, 20))
def test_cut_pieces_join_to_the_text_and_hold_no_long_run(text: str, run: int, most: int) -> None:
    spec = TokenizerSpec(
        kind="transformers", file="", vocabulary=1, vectors=(), max_run=run, max_characters=most
    )
    pieces = list(split_long(text, spec))
    assert "".join(pieces) == text
    assert all(_longest_run(piece) <= run for piece in pieces)


def _longest_run(text: str) -> int:
    longest = length = 0
    for before, character in zip(" " + text, text, strict=False):
        length = length + 1 if length and before.isspace() == character.isspace() else 1
        longest = max(longest, length)
    return longest
