"""A prompt as ids, by PyPI `renderers` with our tokenizer."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import jinja2
import pydantic
from renderers import create_renderer
from renderers.base import Renderer
from renderers.configs import RendererConfig

from transforms.chat.chat_template import TemplateRenderer, encode_marked
from transforms.chat.profile import ModelProfile
from transforms.chat.tokens import load_tokenizer
from transforms.failures import ConfigError, FailureKind, RecordError
from transforms.messages import write_message
from transforms.records import Message, Prompt, Role


def render_prompt(
    prompt: Prompt, profile: ModelProfile, *, thinks: bool = True, keeps_history: bool = True
) -> tuple[int, ...]:
    """int32[P]: the prompt as the model sees it, up to and including what the template prefills.

    `thinks`: thinking is not switched off. `keeps_history`: the thoughts of earlier turns are
    shown to the template, which may drop them itself.

    The prompt must hold no special token's literal: the renderer's own markers are parsed out of
    text (`markers_in_text`).

    Raises:
        RecordError: `TEMPLATE_ERROR`, the template refuses the prompt.
    """
    tools = [json.loads(tool) for tool in prompt.tools] or None
    keeps = keeps_history and (thinks or profile.prompt.thoughts_off)
    shown = prompt.messages if keeps else map(_without_thought, prompt.messages)
    messages = [write_message(message, "reasoning_content") for message in shown]
    renderer = load_renderer(profile, thinks=thinks)
    try:
        ids = renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
    except (ValueError, TypeError, KeyError, AttributeError, jinja2.TemplateError) as error:
        raise RecordError(FailureKind.TEMPLATE_ERROR, f"{type(error).__name__}: {error}") from error
    if any(map(_is_joined_to_header, prompt.messages)):
        tokenizer = load_tokenizer(profile)
        ids = encode_marked(tokenizer.decode(ids), profile, tokenizer)
    return tuple(ids)


def refuse_long(prompt: Prompt, profile: ModelProfile | None, most: int | None) -> None:
    """Counts tokens as the model will see them, if there is a bound; none is cut.

    Raises:
        RecordError: `PROMPT_TOO_LONG`.
    """
    if most is None or profile is None:
        return
    try:
        tokens = len(render_prompt(prompt, profile))
    except RecordError:
        return  # what cannot be rendered is refused where it would be asked
    if tokens > most:
        detail = f"{tokens} tokens, --max_prompt_tokens is {most}"
        raise RecordError(FailureKind.PROMPT_TOO_LONG, detail)


def _is_joined_to_header(message: Message) -> bool:
    """A tool's result that may share a token with the line feed that a template writes before it.

    `renderers` 0.1.12 encodes that line and the result apart, servers the whole text between two
    markers: 2 ids fewer for two results that begin with a line feed of their own.
    """
    return message.role is Role.TOOL and (message.content or "")[:1].isspace()


def _without_thought(message: Message) -> Message:
    return replace(message, reasoning=None)


@cache
def load_renderer(profile: ModelProfile, *, thinks: bool = True) -> Renderer | TemplateRenderer:
    """The profile's renderer, one object a process.

    Raises:
        ConfigError: PyPI `renderers` has no such configuration, or the template is none.
    """
    given = profile.prompt.renderer | ({} if thinks else profile.prompt.thinking_off)
    if profile.prompt.template is not None:
        return _load_template(profile.prompt.template, profile, given)
    try:
        config = pydantic.TypeAdapter(RendererConfig).validate_python(given)
        return create_renderer(load_tokenizer(profile).for_prompts(), config)
    except (pydantic.ValidationError, AssertionError) as error:  # no such setting, no such token
        raise ConfigError(f"profile {profile.name}: [prompt] renderer: {error}") from error


def _load_template(source: str, profile: ModelProfile, given: dict[str, Any]) -> TemplateRenderer:
    settings = {name: value for name, value in given.items() if name != "name"}
    try:
        return TemplateRenderer(source, profile, settings)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"profile {profile.name}: [prompt] template: {error}") from error
