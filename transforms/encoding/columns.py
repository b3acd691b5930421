"""The columns of a sample: one constant, whatever the format."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.records import Verdict

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("prompt_length", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("finish_reason", pa.string()),
        pa.field("model", pa.string()),
        pa.field("provider", pa.string()),
        pa.field("generation_id", pa.string()),
        pa.field("request_sha256", pa.string(), nullable=False),
        pa.field("profile", pa.string(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("repairs", pa.list_(pa.string()), nullable=False),
        pa.field("evidence", pa.string(), nullable=False),
        pa.field("hidden_drift", pa.float64(), nullable=False),
        pa.field("flags", pa.list_(pa.string()), nullable=False),
        pa.field("prompt_tokens", pa.int32()),
        pa.field("completion_tokens", pa.int32()),
        pa.field("reasoning_tokens", pa.int32()),
        pa.field("cost_usd", pa.float64()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("turn", pa.int32(), nullable=False),
        pa.field("sample_index", pa.int32(), nullable=False),
        pa.field("seed", pa.int64()),
        pa.field("temperature", pa.float64()),
        pa.field("top_p", pa.float64()),
        pa.field("max_tokens", pa.int32(), nullable=False),
        pa.field("settings", pa.string(), nullable=False),
    ]
)


def to_columns(verdict: Verdict) -> dict[str, Any]:
    """A good sample's row: `input_ids` as int32[T], everything else plain values."""
    sample = verdict.sample
    completion = sample.exchange.completion
    usage = completion.usage
    cost_usd = usage.cost_usd if usage else None
    return {
        "id": sample.prompt.id,
        "dataset": sample.prompt.dataset,
        "input_ids": np.asarray(sample.input_ids, dtype=np.int32),
        "prompt_length": sample.prompt_length,
        "text": sample.text,
        "finish_reason": completion.finish_reason.value if completion.finish_reason else None,
        "model": completion.model,
        "provider": completion.provider,
        "generation_id": completion.generation_id,
        "request_sha256": sample.exchange.request_sha256,
        "profile": verdict.profile,
        "verdict": "repaired" if sample.repairs else "verbatim",
        "repairs": [repair.value for repair in sample.repairs],
        "evidence": verdict.evidence.value,
        "hidden_drift": verdict.hidden_drift,
        "flags": [flag.value for flag in sample.flags],
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
        "reasoning_tokens": usage.reasoning_tokens if usage else None,
        "cost_usd": None if cost_usd is None else float(cost_usd),
        "source": sample.prompt.source,
        "turn": sample.prompt.turn,
        "sample_index": sample.prompt.sample_index,
        "seed": sample.exchange.seed,
        "temperature": sample.exchange.temperature,
        "top_p": sample.exchange.top_p,
        "max_tokens": sample.exchange.max_tokens,
        "settings": sample.exchange.settings,
    }


def flat_lists(rows: list[npt.NDArray[Any]], kind: type[np.integer[Any]]) -> pa.ListArray:
    """A column of lists by flat values and offsets: 20 x faster than from lists of integers."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(rows, dtype=kind)))
