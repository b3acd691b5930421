"""Conversations that a profile is checked with: each shows the template another part of itself."""

from collections.abc import Mapping

from transforms.chat.profile import ModelProfile, ToolGrammar
from transforms.records import Completion, Exchange, FinishReason, Message, Prompt, Role, ToolCall

_TOOL = (
    '{"function": {"description": "Wetter, 天气", "name": "get_weather", "parameters": '
    '{"properties": {"city": {"description": "as in “São Paulo”", "type": "string"}, '
    '"days": {"type": "integer"}}, "required": ["city"], "type": "object"}}, "type": "function"}'
)
"""Its keys are sorted, as some tokenizers of models sort them before the template sees them."""

_SYSTEM = Message(role=Role.SYSTEM, content="Answer in one line.\n")
_ASKED = Message(role=Role.USER, content="Is it <b>warm</b> & dry in Paris & 北京? It's for 2026.")
_TURNS = (
    Message(role=Role.USER, content="What's 12 × 12?"),
    Message(role=Role.ASSISTANT, content="144.", reasoning="Twelve dozen.\n"),
    Message(role=Role.USER, content="  And\r\n\tminus 1? "),
    Message(role=Role.ASSISTANT, content="143."),
    Message(role=Role.USER, content="Thanks!\n\n"),
)
_LANGUAGES = "用户：你好！ ¿Qué tal? Привет — שלום مرحبا e\u0301 👩‍💻\u3000한국어"


def sample_prompts(profile: ModelProfile) -> Mapping[str, Prompt]:
    """Prompts by what they show; those with tools where the profile's answers can call some."""
    prompts = {
        "one turn": _prompt(_ASKED),
        "system": _prompt(_SYSTEM, _ASKED),
        "several turns": _prompt(_SYSTEM, *_TURNS),
        "no system, several turns": _prompt(*_TURNS),
        "not ASCII": _prompt(Message(role=Role.USER, content=_LANGUAGES)),
    }
    if (tools := profile.answer.tools) is not None:
        prompts["tools"] = _prompt(_SYSTEM, _ASKED, tools=(_TOOL,))
        prompts["tool results"] = _prompt(*_TURNS, *_with_results(tools), tools=(_TOOL,))
    return prompts


def sample_exchange(profile: ModelProfile) -> Exchange:
    """A prompt and an answer with every part that the profile's grammar has."""
    grammar = profile.answer
    calls = _calls(grammar.tools) if grammar.tools else ()
    answer = Message(
        role=Role.ASSISTANT,
        content="Both:\n",
        reasoning="Two cities, “北京” too. \n" if grammar.thought_end else None,
        tool_calls=calls,
    )
    completion = Completion(
        message=answer,
        finish_reason=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
        native_finish_reason=None,
        generation_id=None,
        model=profile.model,
        provider=None,
        usage=None,
    )
    prompt = _prompt(_ASKED, tools=(_TOOL,) if calls else ())
    return Exchange(prompt=prompt, completion=completion, max_tokens=1000, request_sha256="")


def _with_results(tools: ToolGrammar) -> tuple[Message, ...]:
    calls = _calls(tools)
    calling = Message(
        role=Role.ASSISTANT, content="Let me look.", reasoning="Both cities.", tool_calls=calls
    )
    results = zip(calls, ('{"°C": 21}', " \n\n19 °C\n"), strict=True)
    told = (Message(role=Role.TOOL, content=text, tool_call_id=call.id) for call, text in results)
    return (calling, *told)


def _calls(tools: ToolGrammar) -> tuple[ToolCall, ...]:
    """Both ways of writing JSON: a template keeps the text."""
    arguments = ('{"city": "Paris", "days": 2}', '{"city":"北京"}')
    return tuple(
        ToolCall(
            id=tools.id_form.format(name="get_weather", index=n), name="get_weather", arguments=a
        )
        for n, a in enumerate(arguments)
    )


def _prompt(*messages: Message, tools: tuple[str, ...] = ()) -> Prompt:
    return Prompt(id="check", messages=messages, tools=tools, source="check", dataset="check")
