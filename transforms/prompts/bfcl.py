"""Tools of multi-turn BFCL records, which name classes: looked up in files beside the record's."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

DOCUMENTATION: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""Class -> the middle of `BFCL_func_doc_*.json`, as the benchmark's own loader has it."""

Lookup = Callable[[str], Iterable[bytes]]
"""The JSON lines of a file of this name beside the record's; none if there is no such file."""


def class_tools(record: Mapping[str, Any], lookup: Lookup) -> list[dict[str, Any]]:
    """The functions of the record's classes that are documented, less what it excludes."""
    excluded = set(_names(record.get("excluded_function")))
    found = []
    for name in _names(record.get("involved_classes")):
        if name in DOCUMENTATION:
            lines = lookup(f"BFCL_func_doc_{DOCUMENTATION[name]}.json")
            found += [json.loads(line) for line in lines]
    kept = [tool for tool in found if tool.get("name") not in excluded]
    return [{key: tool[key] for key in tool if key != "response"} for tool in kept]


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
