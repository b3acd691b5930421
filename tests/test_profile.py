"""Profiles are checked when they are loaded."""

import pickle
from pathlib import Path

import pytest

from tests.programs import ROOT
from transforms.chat.profile import all_special_tokens, load_profile
from transforms.failures import ConfigError

MODELS = sorted(folder.name for folder in (ROOT / "templates" / "models").iterdir())


@pytest.mark.parametrize("name", MODELS)
def test_every_profile_loads_and_travels_by_value(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert pickle.loads(pickle.dumps(profile)) == profile  # noqa: S301 - our own bytes


def test_unnamed_special_ids_have_a_literal() -> None:
    special = all_special_tokens(load_profile("kimi-k2.5"))
    assert len(special) == 256
    assert special["<|reserved_token_163589|>"] == 163589


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('end = "<|im_end|>"', 'end = "<|end|>"', "have no id"),
        ('name = "kimi-k2.5"\n', 'name = "x"\ncolour = "blue"\n', "colour"),
        ('"<think>" = 163606', '"<think>" = 963606', "outside the vocabulary"),
        ('revision = "4d01dfe0332d63057c186e0b262165819efb6611"', "", "pinned revision"),
        ("(?P<name>.+)", "(.+)", "no group 'name'"),
        ("enabled = true", "since = 2026-01-01", "kimi.toml"),
        ("[answer]", "[answer", "kimi.toml"),
    ],
)
def test_a_profile_that_contradicts_itself_is_refused(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    text = (ROOT / "templates" / "models" / "kimi-k2.5" / "profile.toml").read_text("utf-8")
    assert old in text
    path = tmp_path / "kimi.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load_profile(str(path))


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"kimi-k2\.5"):
        load_profile("kimi-k2")
