"""Rejections as JSON lines that ReadPrompts accepts again."""

import json
from typing import Any

from transforms.failures import Failure
from transforms.generations import first_turn, history, id_at
from transforms.messages import write_message
from transforms.records import Prompt, Verdict


def encode_rejection(rejected: Failure | Verdict) -> bytes:
    """One line: the prompt as it was, or the `raw` line, and why it was rejected.

    A line with a lone surrogate (a byte that was not UTF-8) is written in JSON's escapes.
    """
    row = _of_failure(rejected) if isinstance(rejected, Failure) else _of_verdict(rejected)
    return (json.dumps(row, ensure_ascii=not _is_utf8(row), separators=(",", ":")) + "\n").encode()


def _is_utf8(row: dict[str, Any]) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_failure(failure: Failure) -> dict[str, Any]:
    asked: dict[str, Any] = (
        {"id": failure.id, "raw": failure.raw}
        if failure.prompt is None
        else _write_prompt(failure.prompt)
    )
    return asked | {
        "rejection": {
            "source": failure.source,
            "stage": failure.stage.value,
            "code": failure.kind.value,
            "detail": failure.detail,
            "provider": None,
            "generation_id": None,
            "request_sha256": failure.request_sha256,
            "residual": None,
        },
    }


def _of_verdict(verdict: Verdict) -> dict[str, Any]:
    sample = verdict.sample
    completion = sample.exchange.completion
    first = verdict.issues[0]
    return _write_prompt(sample.prompt) | {
        "rejection": {
            "source": sample.prompt.source,
            "stage": "PartitionByVerdict",
            "code": first.code.value,
            "codes": [issue.code.value for issue in verdict.issues],
            "detail": "; ".join(issue.detail for issue in verdict.issues),
            "provider": completion.provider,
            "generation_id": completion.generation_id,
            "request_sha256": sample.exchange.request_sha256,
            "residual": sample.residual,
            "prompt_length": sample.prompt_length,
            "input_ids": list(sample.input_ids),
        },
    }


def _write_prompt(prompt: Prompt) -> dict[str, Any]:
    """The first generation that the prompt is to come to.

    If its history is still to be asked, recorded answers stand in for the model's own, or empty
    ones, and `history_from` is the number of the first of them.
    """
    turn = first_turn(prompt)
    row: dict[str, Any] = {
        "id": id_at(prompt, turn),
        "messages": [write_message(message) for message in history(prompt, turn)],
        "turn": turn,
        "sample_index": prompt.sample_index,
    }
    if turn > prompt.turn:
        row["history_from"] = prompt.turn
    if prompt.tools:
        row["tools"] = [json.loads(tool) for tool in prompt.tools]
    return row
