"""What hosts make of the messages before the question, through the whole program."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.run import run
from tests import build
from tests.programs import KEY, command_of, rejections, samples, serve_simulator, write_prompts
from transforms.chat.habits import Habit
from transforms.chat.profile import ModelProfile
from transforms.chat.prompt_ids import read_prompt_ids
from transforms.codes import IssueCode
from transforms.prompts.shapes import read_prompt

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
SAME_LENGTH = ('{"q":""}', '{"n":-1}', '{"a": 1.50}')
"""As many tokens as the same object, written anew; the next ones are not."""
ONE_MORE = ('{"city":"Paris"}', '{"a":1}')
OTHER_LENGTH = (*ONE_MORE, '{"u": "\\u00e9"}', "{ }")
UNCHANGED = ('{"city": "Paris"}', "{}")


def asked(number: int, arguments: str | None) -> dict[str, Any]:
    """A question behind a call of other arguments, whose thought the template shows."""
    first = {"role": "user", "content": f"{number}: what is there?"}
    function = {"name": "look", "arguments": arguments}
    call = {"id": "functions.look:0", "type": "function", "function": function}
    calling = {"role": "assistant", "content": None, "reasoning": "Look.", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "functions.look:0", "content": "Nothing."}
    before = [] if arguments is None else [calling, result]
    return {"id": f"{number} {arguments}", "messages": [first, *before], "tools": [TOOL]}


@pytest.mark.parametrize(
    ("habits", "told"),
    [
        ([], (None, *SAME_LENGTH, *OTHER_LENGTH, *UNCHANGED)),
        (
            ["history_arguments_anew", "history_thoughts_dropped"],
            (None, *SAME_LENGTH, *OTHER_LENGTH, *UNCHANGED),
        ),
        # What it adds to every prompt is not taken for tokens of the host's own.
        (["history_arguments_anew"], ONE_MORE),
    ],
)
def test_a_prompt_is_what_the_host_made_of_it_or_is_rejected(
    habits: list[str],
    told: tuple[str | None, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    host = {"name": "Chutes", "price": 2, "habit": habits}
    scenario = {"call_rate": 0, "tokens": {"median": 30, "sigma": 0.3}, "providers": [host]}
    (tmp_path / "s.yaml").write_text(json.dumps(scenario), "utf-8")
    rows = [asked(number, arguments) for number in range(4) for arguments in told]
    unclear = {row["id"] for row in rows if row["id"].endswith(SAME_LENGTH) or None not in told}
    write_prompts(tmp_path, rows)
    with serve_simulator("--scenario", str(tmp_path / "s.yaml")) as server:
        arguments = ("--max_bad_ratio", "1", "--delivery", "whole")
        assert run(command_of(tmp_path, server.base_url, *arguments)[3:]) == 0
        truth = server.truth()
    good = samples(tmp_path / "out")
    for row in good.values():
        assert row["input_ids"] == truth[row["generation_id"]], row["id"]
    refused = {row["id"]: row["rejection"] for row in rejections(tmp_path / "out")}
    # An answer without a thought is not proved to have none: 3 in 100.
    assert {row["code"] for row in refused.values()} <= {"PROMPT_MISMATCH", "REASONING_MISSING"}
    mismatched = {name for name, row in refused.items() if row["code"] == "PROMPT_MISMATCH"}
    assert mismatched <= unclear
    assert not unclear & set(good)


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [('{"city":"Paris"}', [IssueCode.PROMPT_MISMATCH]), ('{"city": "Paris"}', [])],
)
def test_a_prompt_that_is_not_counted_is_not_guessed(
    arguments: str, codes: list[IssueCode], kimi: ModelProfile
) -> None:
    prompt = read_prompt(asked(0, arguments), "p.jsonl:1", "p")
    answer = build.completion("Nothing.", "So.", tokens=5)
    assert answer.usage is not None
    uncounted = replace(answer, usage=replace(answer.usage, prompt_tokens=None))
    _, issues = read_prompt_ids(build.exchange(uncounted, prompt), kimi, Habit())
    assert [issue.code for issue in issues] == codes
