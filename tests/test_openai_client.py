"""The official client of the API as a witness: it takes our requests, and reads what we read."""

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.programs import KEY, Server, example_prompts
from transforms.openrouter.replies import read_body, read_completion
from transforms.openrouter.wire import Sampling, write_request
from transforms.prompts.shapes import read_prompt
from transforms.records import Message

TYPED = ("model", "messages", "tools", "max_tokens", "temperature", "stream")


@pytest.fixture
def client(simulator: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=simulator.base_url, api_key=KEY, max_retries=0)


def asked(row: dict[str, Any], delivery: str) -> dict[str, Any]:
    """Our body as the arguments of `create`; what is not in its types goes into `extra_body`."""
    sampling = Sampling(
        model="moonshotai/kimi-k2.5", max_tokens=4000, temperature=1.0, delivery=delivery,
        extra='{"reasoning": {"enabled": true}}',
    )  # fmt: skip
    body = json.loads(write_request(read_prompt(row, "", ""), sampling).body)
    typed = {name: body.pop(name) for name in TYPED if name in body}
    return typed | {"extra_body": body}


def calls_of(message: Message) -> list[tuple[str | None, str, str]]:
    return [(call.id, call.name, call.arguments) for call in message.tool_calls]


@pytest.mark.parametrize("row", example_prompts(12), ids=lambda row: str(row["id"]))
def test_whole_answers_are_of_its_types(client: openai.OpenAI, row: dict[str, Any]) -> None:
    raw = client.chat.completions.with_raw_response.create(**asked(row, "whole"))
    ours = read_completion(read_body(raw.content))
    theirs = ChatCompletion.model_validate_json(raw.content.strip())
    message = theirs.choices[0].message
    assert message.content == ours.message.content
    assert [
        (call.id, call.function.name, call.function.arguments)  # type: ignore[union-attr]
        for call in message.tool_calls or ()
    ] == calls_of(ours.message)
    assert theirs.choices[0].finish_reason == ours.finish_reason
    assert theirs.usage is not None
    assert ours.usage is not None
    assert theirs.usage.completion_tokens == ours.usage.completion_tokens


@pytest.mark.parametrize("row", example_prompts(12), ids=lambda row: str(row["id"]))
def test_streams_are_put_together_as_it_does(client: openai.OpenAI, row: dict[str, Any]) -> None:
    raw = client.chat.completions.with_raw_response.create(**asked(row, "stream"))
    ours = read_completion(read_body(raw.http_response.read()))
    content, arguments, counted = "", "", None
    for chunk in raw.parse():
        counted = chunk.usage or counted
        for choice in chunk.choices:
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                arguments += (call.function.arguments or "") if call.function else ""
    assert content == (ours.message.content or "")
    assert arguments == "".join(call.arguments for call in ours.message.tool_calls)
    assert counted is not None
    assert ours.usage is not None
    assert counted.completion_tokens == ours.usage.completion_tokens
