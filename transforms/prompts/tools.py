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
_MAY_BE_NULL = {"default", "const"}
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
    given = _present(tool)
    envelope = given if "function" in given else {"type": "function", "function": given}
    function = envelope["function"]
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid(f"a tool has no function with a name; it has {', '.join(tool)}")
    function = _present(function) | {"name": rename(function["name"])}
    if "parameters" in function:
        _check_parameters(function["parameters"], function["name"])
        function["parameters"] = _rewrite(function["parameters"])
    return envelope | {"function": function}


def _check_parameters(parameters: Any, name: str) -> None:
    """A flat map of parameters, or a list of them, is no schema."""
    if not isinstance(parameters, dict):
        raise invalid(f"parameters of tool {name} are no object")
    is_typed = isinstance(parameters.get("type"), str | list | None)
    if parameters and not (is_typed and _SCHEMA_KEYS & set(parameters)):
        raise invalid(f"parameters of tool {name} are no JSON Schema")


def _present(value: dict[str, Any]) -> dict[str, Any]:
    """Without nulls, which stand for keys that were absent before a Parquet united all structs."""
    return {key: inner for key, inner in value.items() if inner is not None or key in _MAY_BE_NULL}


def _rewrite(schema: Any) -> Any:
    """The same schema with JSON Schema's types, at every depth where a schema stands."""
    if isinstance(schema, list):
        return [_rewrite(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    present = _present(schema)
    if isinstance(type_ := present.get("type"), str) and type_ in _TYPES:
        present["type"] = _TYPES[type_]
    return {key: _rewrite_key(key, value) for key, value in _present(present).items()}


def _rewrite_key(key: str, value: Any) -> Any:
    if key in _HOLD_SCHEMAS_BY_NAME and isinstance(value, dict):
        schemas = {name: inner for name, inner in value.items() if inner is not None}
        return {name: _rewrite(inner) for name, inner in schemas.items()}
    return _rewrite(value) if key in _HOLD_SCHEMAS else value
