"""Every fault case, from the bytes on the wire to the verdict: see `fault_cases`.

`FAULT_CASES` names another file of the same shape. The case's id and kind are for people: only
request, response and profile words go in.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHARED
from tests.fault_cases import family_of, run_case

FILE = Path(os.environ.get("FAULT_CASES", SHARED / "fault-cases.jsonl"))
CASES: list[dict[str, Any]] = (
    [json.loads(line) for line in FILE.read_text("utf-8").splitlines() if line]
    if FILE.exists()
    else []
)


@pytest.mark.skipif(not CASES, reason=f"no fault cases at {FILE}")
@pytest.mark.parametrize("case", CASES, ids=[f"{case['id']}-{case['kind']}" for case in CASES])
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    if case["count_basis"] == "illustrative" and case["verdict"] != "bad":
        pytest.skip("its count is a placeholder: by the first law it cannot be good")
    found = run_case(case["request"], case["response"], case["profile"], tmp_path)
    assert found.verdict == case["verdict"], found.detail
    if case["verdict"] == "bad":
        assert found.family == family_of(case["reason_code"]), found.detail
    else:
        assert list(found.ids or ()) == case["expected_ids"], found.detail
