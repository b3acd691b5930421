"""The README says what the code does: reasons, columns, exit codes, flags."""

import re
import subprocess
import sys

import pytest

from pipeline.main import COMMANDS, USAGE
from tests.programs import ROOT
from transforms.codes import Flag, IssueCode, Repair
from transforms.encoding.columns import SCHEMA
from transforms.encoding.formats import FORMATS
from transforms.encoding.loss_mask import DIALECTS
from transforms.failures import FailureKind

README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("reasons", [IssueCode, FailureKind, Repair, Flag])
def test_lists_every_reason(reasons: type[IssueCode | FailureKind | Repair | Flag]) -> None:
    assert [reason.value for reason in reasons if f"`{reason.value}`" not in README] == []


def test_lists_no_reason_that_does_not_exist() -> None:
    known = {reason.value for group in (IssueCode, FailureKind) for reason in group}
    tables = README.split("| code | a bad sample because |")[1].split("### Exit codes")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE)) == known


def test_lists_every_column_in_order() -> None:
    table = README.split("### Columns of a sample")[1].split("| in `repairs`")[0]
    names = [
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    assert names == SCHEMA.names


def test_exit_codes_are_those_of_the_help() -> None:
    table = README.split("### Exit codes")[1].split("### summary.json")[0]
    for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE):
        assert re.search(rf"\b{code} ", USAGE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_its_flags(command: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pipeline.main", command, "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    flags = re.findall(r"^  (--\w+)", run.stdout, re.MULTILINE)
    assert flags
    blocks = re.split(r"^  (?=--|-h)", run.stdout, flags=re.MULTILINE)[1:]
    assert [block for block in blocks if len(block.split()) < 3] == []


def test_lists_every_format_and_dialect() -> None:
    section = README.split("### Formats")[1].split("### Columns")[0]
    formats, dialects = section.split("| dialect |")
    assert re.findall(r"^\| `(\w+)` \|", formats, re.MULTILINE) == list(FORMATS)
    cells = re.findall(r"^\| (`.*?) \|", dialects, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == set(DIALECTS)
