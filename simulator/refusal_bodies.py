"""Error bodies of sources that have not OpenRouter's envelope: of a status and a message."""

from http import HTTPStatus
from typing import Any


def vllm(status: int, message: str) -> dict[str, Any]:
    """Of vLLM."""
    kind = "NotFoundError" if status == HTTPStatus.NOT_FOUND else "BadRequestError"
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def sglang(status: int, message: str) -> dict[str, Any]:
    """SGLang's."""
    kind = "BadRequestError"
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def moonshot(status: int, message: str) -> dict[str, Any]:
    """Moonshot's."""
    kinds = {429: "rate_limit_reached_error", 404: "resource_not_found_error",
             402: "exceeded_current_quota_error", 503: "engine_overloaded_error"}  # fmt: skip
    return {"error": {"message": message, "type": kinds.get(status, "invalid_request_error")}}


def together(status: int, message: str) -> dict[str, Any]:
    """Together's."""
    kind = "rate_limit" if status == HTTPStatus.TOO_MANY_REQUESTS else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def fireworks(status: int, message: str) -> dict[str, Any]:
    """Fireworks': a list for what it cannot read."""
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return {"detail": [{"loc": ["body"], "msg": message, "type": "value_error"}]}
    error = {"object": "error", "type": "invalid_request_error", "message": message}
    return {"error": error | {"code": "invalid_request_error"}}


def deepinfra(_status: int, message: str) -> dict[str, Any]:
    """DeepInfra's."""
    return {"detail": {"error": message}}
