"""Two processes of one host that hold prompts of the same text."""

import json
import subprocess
import sys
from pathlib import Path

from tests.programs import ROOT, serve_simulator
from tests.test_client import KEY
from transforms.openrouter.claims import Claims
from transforms.openrouter.sqlite_store import SqliteStore

_ASK = """
import asyncio, sys
from pathlib import Path
from tests.simulated import request_of
from tests.test_client import config
from transforms.openrouter.client import OpenRouterClient
from transforms.openrouter.wire import Request

async def ask(base_url, folder):
    client = OpenRouterClient(config(base_url, Path(folder), has_peers=True))
    texts = [f"question {number}" for number in range(30)]
    asked = (client.answer(Request(request_of(text))) for text in texts)
    print(*[found.reply["id"] for found in await asyncio.gather(*asked)])
    await client.close()

asyncio.run(ask(*sys.argv[1:]))
"""
_HOLD = """
import sys
from pathlib import Path
from transforms.openrouter.claims import Claims
claims = Claims(Path(sys.argv[1]))
print(claims.take("ab" * 32), flush=True)
sys.stdin.read()
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_the_same_text_is_paid_for_once(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY, "utf-8")
    SqliteStore(str(tmp_path / "store"))  # as a run makes it, before it starts processes
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(json.dumps({"latency": {"median_s": 1, "sigma": 0.3}}), "utf-8")
    with serve_simulator("--scenario", str(scenario)) as server:
        both = [start(_ASK, server.base_url, str(tmp_path)) for _ in range(2)]
        found = [process.communicate(timeout=60)[0].split() for process in both]
        ledger = server.ledger()
    assert len(set(found[0])) == 30
    assert found[0] == found[1]
    assert (ledger["requests"], ledger["duplicates"]) == (30, 0)


def test_who_dies_gives_its_claims_back(tmp_path: Path) -> None:
    file = tmp_path / "claims"
    holder = start(_HOLD, str(file))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    claims = Claims(file)
    assert not claims.take("ab" * 32)
    assert claims.take("cd" * 32)
    holder.kill()
    holder.wait()
    assert claims.take("ab" * 32)
    claims.close()
