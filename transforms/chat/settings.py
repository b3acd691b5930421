"""What the request asked beside its messages, as far as it decides what was sampled."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from transforms.codes import IssueCode
from transforms.records import Exchange, Issue


@dataclass(frozen=True, slots=True)
class Rule:
    """A setting under which the ids cannot be known, and why."""

    field: str
    code: IssueCode
    allowed: tuple[Any, ...] = (None,)


RULES = (
    Rule("plugins", IssueCode.RESPONSE_REWRITTEN, (None, [])),
    Rule("response_format", IssueCode.RESPONSE_REWRITTEN, (None, {"type": "text"})),
    Rule("tool_choice", IssueCode.FORCED_TOOL_CHOICE, (None, "auto", "none")),
    Rule("stop", IssueCode.STOP_STRING, (None, [])),
    Rule("n", IssueCode.USAGE_UNUSABLE, (None, 1)),
)
"""Constrained decoding, rewriting, counts of several choices (fidelity.md, step 0)."""

_OFF = (
    ("reasoning", "enabled", False),
    ("reasoning", "effort", "none"),
    ("chat_template_kwargs", "thinking", False),
    ("chat_template_kwargs", "enable_thinking", False),
    ("thinking", "type", "disabled"),
)
"""Ways in which sources are told not to think."""


@lru_cache(maxsize=256)
def read_settings(text: str) -> dict[str, Any]:
    """The settings of a request; never changed by who reads them."""
    settings: dict[str, Any] = json.loads(text)
    return settings


@lru_cache(maxsize=256)
def thinking_is_off(text: str) -> bool:
    """True where the request switches thinking off."""
    settings = read_settings(text)
    if settings.get("reasoning_effort") == "none":
        return True
    return any(
        isinstance(found := settings.get(name), dict) and found.get(key) == value
        for name, key, value in _OFF
    )


def find_settings_issues(exchange: Exchange) -> tuple[Issue, ...]:
    """The settings of the request that forbid to know the ids."""
    settings = read_settings(exchange.settings)
    issues = [
        Issue(rule.code, f"the request has {rule.field} = {json.dumps(settings[rule.field])}")
        for rule in RULES
        if settings.get(rule.field) not in rule.allowed
    ]
    strict = [tool for tool in exchange.prompt.tools if _is_strict(tool)]
    if strict:
        detail = "a tool is declared with strict: true, which constrains sampling; declare it false"
        issues.append(Issue(IssueCode.FORCED_TOOL_CHOICE, detail))
    return tuple(issues)


def _is_strict(tool: str) -> bool:
    if '"strict"' not in tool:
        return False
    read = json.loads(tool)
    function = read.get("function") if isinstance(read, dict) else None
    return isinstance(function, dict) and function.get("strict") is True
