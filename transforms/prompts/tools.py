"""Tool definitions of all dialects -> the API's, each as JSON text."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from transforms.prompts.messages import dump, invalid

_TYPES: Mapping[str, str | None] = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "any": None,
}
"""Types that are Python's, and JSON Schema's for them; None: no type."""
_SCHEMA_KEYS = {"type", "properties", "$ref", "anyOf", "oneOf", "allOf"}
_HOLD_SCHEMAS_BY_NAME = {"properties", "$defs", "definitions", "patternProperties"}
_HOLD_SCHEMAS = {"items", "anyOf", "oneOf", "allOf", "additionalProperties", "prefixItems", "not"}


def read_tools(tools: Any, rename: Callable[[str], str] = str) -> tuple[str, ...]:
    """A list of definitions, or JSON text of one; a bare function gets its envelope.

    Raises:
        RecordError: `INVALID_PROMPT`: a definition that is not of a function, or whose parameters
            are no JSON Schema.
    """
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except (ValueError, RecursionError) as error:
            raise invalid(f"tools are text but not JSON: {error}") from error
    if tools is None:
        return ()
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise invalid("tools are not a list of objects")
    return tuple(dump(_read_tool(tool, rename)) for tool in tools)


def _read_tool(tool: dict[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    envelope = tool if "function" in tool else {"type": "function", "function": tool}
    function = envelope["function"]
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid(f"a tool has no function with a name; it has {', '.join(tool)}")
    parameters = function.get("parameters")
    if isinstance(parameters, dict) and parameters:
        type_ = parameters.get("type")
        if not _SCHEMA_KEYS & set(parameters) or not isinstance(type_, str | list | None):
            raise invalid(f"parameters of tool {function['name']} are no JSON Schema")
    elif parameters:
        raise invalid(f"parameters of tool {function['name']} are no object")
    changed: dict[str, Any] = {"name": rename(function["name"])}
    if parameters:
        changed["parameters"] = _rewrite(parameters)
    return {**envelope, "function": {**function, **changed}}


def _rewrite(schema: Any) -> Any:
    """The same schema with JSON Schema's types, at every depth where a schema stands."""
    if isinstance(schema, list):
        return [_rewrite(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    rewritten: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type" and isinstance(value, str) and value in _TYPES:
            if (type_ := _TYPES[value]) is not None:
                rewritten[key] = type_
        elif key in _HOLD_SCHEMAS_BY_NAME and isinstance(value, dict):
            rewritten[key] = {name: _rewrite(inner) for name, inner in value.items()}
        else:
            rewritten[key] = _rewrite(value) if key in _HOLD_SCHEMAS else value
    return rewritten
