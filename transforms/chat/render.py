"""A prompt as ids, by PyPI `renderers` with our tokenizer."""

import json
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
from transforms.records import Prompt


def render_prompt(prompt: Prompt, profile: ModelProfile) -> tuple[int, ...]:
    """int32[P]: the prompt as the model sees it, up to and including what the template prefills.

    The prompt must hold no special token's literal: the renderer's own markers are parsed out of
    text (`markers_in_text`).

    Raises:
        RecordError: `TEMPLATE_ERROR`, the template refuses the prompt.
    """
    tools = [json.loads(tool) for tool in prompt.tools] or None
    messages = [write_message(message, "reasoning_content") for message in prompt.messages]
    renderer = load_renderer(profile)
    try:
        ids = renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
    except (ValueError, TypeError, KeyError, AttributeError, jinja2.TemplateError) as error:
        raise RecordError(FailureKind.TEMPLATE_ERROR, f"{type(error).__name__}: {error}") from error
    return tuple(ids)


@cache
def load_renderer(profile: ModelProfile) -> Renderer:
    """The profile's renderer, one object a process.

    Raises:
        ConfigError: PyPI `renderers` has no such configuration.
    """
    try:
        config = pydantic.TypeAdapter(RendererConfig).validate_python(profile.prompt.renderer)
    except pydantic.ValidationError as error:
        raise ConfigError(f"profile {profile.name}: [prompt] renderer: {error}") from error
    return create_renderer(load_tokenizer(profile).for_prompts(), config)
