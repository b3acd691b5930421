"""Samples as text, for trainers that tokenise it again: three shapes of a JSON line."""

import re
from dataclasses import dataclass
from typing import Any

PASSTHROUGH = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""A chat template that adds nothing: what `messages` is to be rendered with."""
MARKED_PASSTHROUGH = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}{% endgeneration %}"
    "{% else %}{{ message['content'] }}{% endif %}{% endfor %}"
)
"""The same with the tags that Model-Optimizer masks by; they take a fast tokenizer."""


@dataclass(frozen=True, slots=True)
class TextRow:
    """A sample whose text gives its ids back: the rendered prompt, and what was sampled."""

    id: str
    dataset: str
    prompt: str
    answer: str


def to_specforge(row: TextRow) -> dict[str, Any]:
    """SpecForge with `data.is_preformatted`."""
    return {"id": row.id, "dataset": row.dataset, "text": row.prompt + row.answer}


def to_messages(row: TextRow) -> dict[str, Any]:
    """NeMo Automodel and Model-Optimizer, under the template `PASSTHROUGH`."""
    messages = [
        {"role": "user", "content": row.prompt},
        {"role": "assistant", "content": row.answer},
    ]
    named = {"id": row.id, "dataset": row.dataset, "conversation_id": row.id}
    return named | {"messages": messages}


_HEADERS = {
    "<|im_system|>system<|im_middle|>": "system",
    "<|im_user|>user<|im_middle|>": "user",
    "<|im_assistant|>assistant<|im_middle|>": "assistant",
    "<|im_system|>tool<|im_middle|>": "tool",
}
"""What TorchSpec's Kimi-K2.5 parser (9d072fc) writes before a message of each role."""
_END = "<|im_end|>"
TORCHSPEC_MARKERS = frozenset({"<|im_system|>", "<|im_middle|>", "<think>", "</think>", _END})
_TURN = re.compile(f"({'|'.join(map(re.escape, _HEADERS))})(.*?){re.escape(_END)}", re.DOTALL)
_CHANGED = {
    "user": re.compile(re.escape("<|image|>")),
    "assistant": re.compile(r"\A(?!<think></think>(?!.*</?think>))", re.DOTALL),
}
"""Content of an earlier turn that the parser would write otherwise."""


def to_torchspec(row: TextRow) -> dict[str, Any] | None:
    """TorchSpec's Kimi-K2.5 parser; `None`: it has no way to this text (tools, kept thoughts)."""
    text = row.prompt + row.answer
    turns = list(_TURN.finditer(text))
    if "".join(turn[0] for turn in turns) != text:
        return None
    *earlier, last = [(_HEADERS[turn[1]], turn[2]) for turn in turns]
    changed = [role in _CHANGED and _CHANGED[role].search(content) for role, content in earlier]
    if last[0] != "assistant" or not last[1].startswith("<think>") or any(changed):
        return None
    plain = [(role, content.removeprefix("<think></think>")) for role, content in earlier]
    conversation = [{"role": role, "content": content} for role, content in [*plain, last]]
    return {"id": row.id, "dataset": row.dataset, "conversations": conversation}
