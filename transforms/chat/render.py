"""A prompt as ids, by PyPI `renderers` with our tokenizer."""

import json
from dataclasses import replace
from functools import cache

import jinja2
import pydantic
from renderers import create_renderer
from renderers.base import Renderer
from renderers.configs import RendererConfig

from transforms.chat.profile import ModelProfile
from transforms.chat.tokens import load_tokenizer
from transforms.failures import ConfigError, FailureKind, RecordError
from transforms.messages import write_message
from transforms.records import Message, Prompt


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
    shown = prompt.messages if keeps_history else map(_without_thought, prompt.messages)
    messages = [write_message(message, "reasoning_content") for message in shown]
    renderer = load_renderer(profile, thinks=thinks)
    try:
        ids = renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
    except (ValueError, TypeError, KeyError, AttributeError, jinja2.TemplateError) as error:
        raise RecordError(FailureKind.TEMPLATE_ERROR, f"{type(error).__name__}: {error}") from error
    return tuple(ids)


def _without_thought(message: Message) -> Message:
    return replace(message, reasoning=None)


@cache
def load_renderer(profile: ModelProfile, *, thinks: bool = True) -> Renderer:
    """The profile's renderer, one object a process.

    Raises:
        ConfigError: PyPI `renderers` has no such configuration.
    """
    given = profile.prompt.renderer | ({} if thinks else profile.prompt.thinking_off)
    try:
        config = pydantic.TypeAdapter(RendererConfig).validate_python(given)
    except pydantic.ValidationError as error:
        raise ConfigError(f"profile {profile.name}: [prompt] renderer: {error}") from error
    return create_renderer(load_tokenizer(profile).for_prompts(), config)
