"""A chat template in Jinja: a prompt as text, as transformers renders it, and that text as ids."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from renderers.kimi_k25 import _encode_tools_typescript

from transforms.chat.profile import ModelProfile, all_special_tokens, special_literals
from transforms.chat.tokens import Tokenizer, open_tokenizer
from transforms.failures import ConfigError


class TemplateRenderer:
    """Renders as PyPI `renderers` do, by a template's source.

    `settings`: variables of the template beside messages and tools. `tools_ts_str`, the tools as
    TypeScript that Kimi's tokenizers hand to their templates, is written by PyPI `renderers`.

    Raises:
        jinja2.TemplateSyntaxError: The source is no template.
    """

    def __init__(self, source: str, profile: ModelProfile, settings: Mapping[str, Any]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _write_json
        environment.globals["raise_exception"] = _refuse
        self._template = environment.from_string(source)
        self._has_typescript = "tools_ts_str" in source
        self._profile = profile
        self._settings = dict(settings)

    def render_ids(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        """Ids of the rendered text, special literals in it as the tokens.

        Raises:
            jinja2.TemplateError: The template refuses the prompt.
        """
        text = self._template.render(
            messages=messages,
            tools=tools,
            tools_ts_str=_encode_tools_typescript(tools)
            if tools and self._has_typescript
            else None,
            add_generation_prompt=add_generation_prompt,
            **self._settings,
        )
        return encode_marked(text, self._profile, open_tokenizer(self._profile))


def _write_json(
    value: Any,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    *,
    ensure_ascii: bool = False,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML and sorts keys."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def encode_marked(text: str, profile: ModelProfile, tokenizer: Tokenizer) -> list[int]:
    """int32[T]: a text in which special literals are the tokens; what is between them, alone."""
    literals, ids, start = special_literals(profile), list[int](), 0
    special = all_special_tokens(profile)
    for found in literals.finditer(text):
        ids += (*tokenizer.encode(text[start : found.start()]), special[found[0]])
        start = found.end()
    return ids + tokenizer.encode(text[start:])


def find_template(folder: Path) -> str | None:
    """The chat template among a tokenizer's files; `None`: there is none.

    Raises:
        ConfigError: A file that cannot be read.
    """
    if (path := folder / "chat_template.jinja").is_file():
        return read_text(path)
    templates = read_tokenizer_config(folder).get("chat_template")
    if isinstance(templates, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in templates}
        templates = named.get("default")
    return templates if isinstance(templates, str) else None


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """`tokenizer_config.json` of a tokenizer's folder, empty where there is none.

    Raises:
        ConfigError: It is no JSON object.
    """
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        read: dict[str, Any] = msgspec.json.decode(read_text(path), type=dict[str, Any])
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    return read


def read_text(path: Path) -> str:
    """A file of text.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
