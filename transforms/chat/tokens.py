"""Text -> ids and back, exactly as the model's own tokenizer, special text never parsed."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Protocol

import tiktoken
from tiktoken.load import load_tiktoken_bpe

from transforms.chat.carriers import find_files
from transforms.chat.profile import ModelProfile, TokenizerSpec, all_special_tokens
from transforms.failures import ConfigError


class Tokenizer(Protocol):
    """What the pipeline needs of any tokenizer.

    Attributes:
        size: How many tokens it has, special ones included.
    """

    size: int

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text; a special token's literal in it stays text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens by their literal; broken UTF-8 becomes U+FFFD."""

    def id_of(self, token: bytes) -> int | None:
        """The one id of a token's bytes, special tokens by their literal; `None`: there is none."""

    def for_prompts(self) -> Any:
        """The object that PyPI `renderers` renders prompts with."""


@cache
def load_tokenizer(profile: ModelProfile) -> Tokenizer:
    """The profile's tokenizer, one object a process, its golden vectors checked.

    Raises:
        ConfigError: Files missing or of another digest; or a tokenizer that gives other ids.
    """
    tokenizer = open_tokenizer(profile)
    _check_vectors(tokenizer, profile)
    return tokenizer


@cache
def open_tokenizer(profile: ModelProfile) -> Tokenizer:
    """The profile's tokenizer before its golden vectors are checked, for who checks them itself.

    Raises:
        ConfigError: Files missing or of another digest.
    """
    kind = _KINDS.get(profile.tokenizer.kind, LibraryTokenizer)
    return kind(profile)


def _check_vectors(tokenizer: Tokenizer, profile: ModelProfile) -> None:
    for vector in profile.tokenizer.vectors:
        if (found := tuple(tokenizer.encode(vector.text))) != vector.ids:
            raise ConfigError(
                f"profile {profile.name}: {type(tokenizer).__name__} encodes {vector.text!r} as "
                f"{list(found)}, the model's tokenizer as {list(vector.ids)}: wrong class or files"
            )
    for literal, number in profile.special_tokens.items():
        if (text := tokenizer.decode([number])) != literal:
            raise ConfigError(f"profile {profile.name}: id {number} is {text!r}, not {literal!r}")


class RankTokenizer:
    """tiktoken over a rank file, with the model's own cutting of long texts."""

    def __init__(self, profile: ModelProfile) -> None:
        spec = profile.tokenizer
        self._spec = spec
        self._special = dict(all_special_tokens(profile))
        self._in_prompts = set(profile.prompt.markers_in_text)
        ranks = load_tiktoken_bpe(str(find_files(spec) / spec.file))
        self.size = len(ranks) + len(self._special)
        try:
            self._encoding = tiktoken.Encoding(
                profile.name,
                pat_str="|".join(spec.pattern),
                mergeable_ranks=ranks,
                special_tokens=self._special,
            )
        except ValueError as error:
            raise ConfigError(f"profile {profile.name}: pattern or ids: {error}") from error

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in split_long(text, self._spec):
            ids += self._encoding.encode_ordinary(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._encoding.decode(ids)

    def id_of(self, token: bytes) -> int | None:
        try:
            return self._encoding.encode_single_token(token)
        except KeyError:
            return None

    def for_prompts(self) -> "PromptTokenizer":
        return PromptTokenizer(self._encoding, self._special, self._in_prompts, self._spec)


class PromptTokenizer:
    """What `renderers` asks of a tokenizer; the markers that it writes as text become ids."""

    name_or_path = ""
    unk_token_id: int | None = None
    eos_token_id: int | None = None

    def __init__(
        self,
        encoding: tiktoken.Encoding,
        special: dict[str, int],
        markers: set[str],
        spec: TokenizerSpec,
    ) -> None:
        self._encoding = encoding
        self._special = special
        self._markers = markers
        self._spec = spec

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        if add_special_tokens:
            raise ValueError("this tokenizer adds no special tokens by itself")
        ids: list[int] = []
        for piece in split_long(text, self._spec):
            ids += self._encoding.encode(
                piece, allowed_special=self._markers, disallowed_special=()
            )
        return ids

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return self._encoding.decode(ids)

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        if isinstance(tokens, str):
            return self._special.get(tokens, self.unk_token_id)
        return [self._special.get(token, self.unk_token_id) for token in tokens]


def _byte_letters() -> dict[int, str]:
    """GPT-2's letter of each byte: its own where it is printed, else one from U+0100 on."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printed]
    letters = {byte: chr(byte) for byte in printed}
    return letters | {byte: chr(0x100 + place) for place, byte in enumerate(others)}


_LETTERS = _byte_letters()


class LibraryTokenizer:
    """Any tokenizer that transformers loads.

    Ordinary text is encoded by a copy without the special tokens: transformers' own switch still
    parses those that are marked `special: false`, such as thinking and tool markers.
    """

    def __init__(self, profile: ModelProfile) -> None:
        from tokenizers import Tokenizer as FastTokenizer  # noqa: PLC0415
        from transformers import AutoTokenizer  # noqa: PLC0415 - 1 s, 170 MB: only who uses it

        folder = find_files(profile.tokenizer)
        self._library = AutoTokenizer.from_pretrained(str(folder))
        self.size = len(self._library)
        plain = json.loads(self._library.backend_tokenizer.to_str())
        special = self._special = dict(all_special_tokens(profile))
        plain["added_tokens"] = [
            token
            for token in plain["added_tokens"]
            if not token["special"] and token["content"] not in special
        ]
        self._plain = FastTokenizer.from_str(json.dumps(plain))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._library.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def id_of(self, token: bytes) -> int | None:
        text = token.decode("utf-8", "replace")
        if (special := self._special.get(text)) is not None:
            return special
        if "\ufffd" in text:  # part of a character, in the letters of byte-level vocabularies
            found: int | None = self._plain.token_to_id("".join(_LETTERS[byte] for byte in token))
            return found
        ids = self.encode(text)
        return ids[0] if len(ids) == 1 else None

    def for_prompts(self) -> Any:
        return self._library


def split_long(text: str, spec: TokenizerSpec) -> Iterator[str]:
    """Cuts a text as the model's tokenizer does before it encodes; short texts stay whole.

    >>> spec = TokenizerSpec(kind="transformers", file="", vocabulary=1, vectors=(), max_run=3)
    >>> list(split_long("aaaa b", spec))
    ['aaa', 'a b']
    """
    if spec.max_run is None or len(text) <= spec.max_run:
        yield text
        return
    step = spec.max_characters or len(text)
    runs = re.compile(rf"\S{{{spec.max_run + 1},}}|\s{{{spec.max_run + 1},}}")
    for start in range(0, len(text), step):
        yield from _split_runs(text[start : start + step], runs, spec.max_run)


def _split_runs(text: str, runs: re.Pattern[str], max_run: int) -> Iterator[str]:
    begin = 0
    for run in runs.finditer(text):
        for cut in range(run.start() + max_run, run.end(), max_run):
            yield text[begin:cut]
            begin = cut
    yield text[begin:]


_KINDS: dict[str, type[RankTokenizer] | type[LibraryTokenizer]] = {
    "tiktoken": RankTokenizer,
    "transformers": LibraryTokenizer,
}
