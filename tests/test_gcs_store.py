"""The response store in a bucket: what lies there, who wins a race, what a kill -9 costs.

What it shares with the store on disk is in `test_store.py`.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from tests.buckets import objects, remove, write
from tests.flaky import FlakyProxy, serve_flaky
from tests.programs import (
    KEY,
    ROOT,
    Server,
    assert_whole,
    example_prompts,
    run_pipeline,
    samples,
    slow_simulator,
    start_and_wait_for,
    write_prompts,
)
from transforms.failures import ConfigError, StoreError
from transforms.openrouter.envelope import pack
from transforms.openrouter.gcs_store import GcsStore
from transforms.openrouter.store import Attempt

REQUEST = "ab" * 32
MARK = "answers/store.json"
ANSWER = Attempt(
    request_sha256=REQUEST,
    run_id="run",
    status=200,
    error=None,
    headers=(("content-type", "application/json"),),
    body=b'{\n"a": 1}\n\x00\xff',
    started_at=1.5,
    ended_at=2.5,
    first_at=1.75,
)


@contextlib.contextmanager
def opened(bucket: str) -> Iterator[GcsStore]:
    with contextlib.closing(GcsStore(f"gs://{bucket}/answers/")) as store:
        yield store


def test_the_layout_is_the_documented_one(bucket: str) -> None:
    with opened(bucket) as store:
        asyncio.run(store.put(ANSWER))
        asyncio.run(store.put(replace(ANSWER, run_id="other", body=b"")))
    found = objects(bucket)
    folder = f"answers/ab/{REQUEST}"
    first, second = f"{folder}/0001", f"{folder}/0002"
    runs = [f"answers/runs/other/{REQUEST}-0002", f"answers/runs/run/{REQUEST}-0001"]
    assert sorted(found) == sorted([first, second, *runs, MARK])
    head, _, body = found[first].partition(b"\n")
    assert body == ANSWER.body
    assert json.loads(head) == {
        "request_sha256": REQUEST,
        "run_id": "run",
        "status": 200,
        "error": None,
        "headers": [["content-type", "application/json"]],
        "started_at": 1.5,
        "ended_at": 2.5,
        "first_at": 1.75,
        "last_at": None,
        "sent": None,
    }
    assert {found[name] for name in runs} == {b""}


def test_writers_that_race_for_a_number_all_keep_theirs(bucket: str) -> None:
    bodies = [b"%d" % number for number in range(12)]
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(opened(bucket)) for _ in range(4)]

        async def race() -> None:
            puts = (
                stores[number % 4].put(replace(ANSWER, body=body))
                for number, body in enumerate(bodies)
            )
            await asyncio.gather(*puts)

        asyncio.run(race())
        kept = stores[0].attempts(REQUEST)
        counted = list(stores[1].attempts_of_run("run"))
    assert [item.number for item in kept] == list(range(1, 13))
    assert sorted(item.body for item in kept) == sorted(bodies)
    assert counted == list(kept)


def test_what_came_first_stays_as_it_is(bucket: str) -> None:
    with opened(bucket) as store:
        asyncio.run(store.put(ANSWER))
        before = objects(bucket)
        asyncio.run(store.put(replace(ANSWER, body=b"later")))
    assert objects(bucket).items() >= before.items()


@pytest.fixture
def proxy(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyProxy]:
    """Between the test's bucket and the stores that are opened in it."""
    assert bucket
    with serve_flaky(os.environ["STORAGE_EMULATOR_HOST"]) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.address)
        yield proxy


def test_a_put_whose_reply_was_lost_is_there_once(bucket: str, proxy: FlakyProxy) -> None:
    with opened(bucket) as store:
        before = proxy.uploads
        proxy.losses = 1
        asyncio.run(store.put(ANSWER))
        assert proxy.uploads == before + 3  # twice the attempt, once its run's object
        assert store.attempts(REQUEST) == (replace(ANSWER, number=1),)
        assert len(list(store.attempts_of_run("run"))) == 1


def test_a_bucket_that_is_gone_stops_the_run(bucket: str) -> None:
    with opened(bucket) as store:
        remove(bucket)
        with pytest.raises(StoreError, match=f"--store gs://{bucket}/answers: cannot .* keep"):
            asyncio.run(store.put(ANSWER))
        with pytest.raises(StoreError):
            store.attempts(REQUEST)
        with pytest.raises(StoreError):
            list(store.all_attempts())


def test_a_slow_bucket_does_not_hold_the_event_loop(bucket: str, proxy: FlakyProxy) -> None:
    async def put_while_the_bucket_waits_for_us(store: GcsStore) -> bool:
        proxy.arrived.clear()
        proxy.go_on.clear()
        putting = asyncio.ensure_future(store.put(ANSWER))
        await asyncio.to_thread(proxy.arrived.wait)
        was_done = putting.done()
        proxy.go_on.set()
        await putting
        return was_done

    with opened(bucket) as store:
        assert not asyncio.run(put_while_the_bucket_waits_for_us(store))
        assert store.attempts(REQUEST) == (replace(ANSWER, number=1),)
    assert not proxy.waited_in_vain


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    missing = f"{bucket}-none"
    with pytest.raises(ConfigError, match=rf"--store gs://{missing}/answers: .* does not exist; "):
        GcsStore(f"gs://{missing}/answers")


def test_no_credentials_are_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(ConfigError, match=r"none\.json.*gcloud auth application-default login"):
        GcsStore("gs://bucket/answers")


@pytest.mark.parametrize("name", ["answers/thesis.txt", MARK, "answers/ab/x"])
def test_a_prefix_of_others_is_left_alone(bucket: str, name: str) -> None:
    write(bucket, name, b"years of work")
    with pytest.raises(ConfigError, match="no response store of this program; nothing was changed"):
        GcsStore(f"gs://{bucket}/answers")
    assert objects(bucket) == {name: b"years of work"}


def test_a_folder_made_by_hand_is_empty(bucket: str) -> None:
    write(bucket, "answers/", b"")
    write(bucket, "answers-of-others/x", b"")
    with opened(bucket) as store:
        asyncio.run(store.put(ANSWER))
    with opened(bucket) as store:
        assert len(list(store.all_attempts())) == len(store.attempts(REQUEST)) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("0001", b"not zstd"),
        ("0001", b""),
        ("0001", zstandard.compress(b"[]")),
        ("0001", zstandard.compress(b'{"status": 200}\nbody')),
        ("0001", pack(replace(ANSWER, request_sha256="cd" * 32))),
        ("0001.bak", pack(ANSWER)),
    ],
)
def test_what_is_not_ours_in_the_place_of_an_attempt_is_named(
    bucket: str, name: str, content: bytes
) -> None:
    with opened(bucket) as store:
        write(bucket, f"answers/ab/{REQUEST}/{name}", content)
        with pytest.raises(ConfigError, match=rf"ab/{REQUEST}/{name} is not an answer"):
            store.attempts(REQUEST)


def test_kill_9_pays_twice_at_most_what_was_in_flight(tmp_path: Path, bucket: str) -> None:
    store = ("--store", f"gs://{bucket}/answers")
    write_prompts(tmp_path, example_prompts(80))
    with slow_simulator(tmp_path) as server:
        process = start_and_wait_for(tmp_path, server, 40, *store)
        process.kill()
        process.wait()
        flags = ("--max_in_flight", "16", "--requests_per_minute", "60000", *store)
        finished = run_pipeline(tmp_path, server.base_url, *flags)
        assert finished.returncode == 0, finished.stderr
        assert assert_whole(tmp_path, 80)["good"] == 80
        truth = server.truth()
        good = samples(tmp_path / "out")
        assert all(row["input_ids"] == truth[row["generation_id"]] for row in good.values())
        assert server.ledger()["duplicates"] <= 16
        assert server.ledger()["requests"] <= 80 + 16
    assert (tmp_path / "out.habits.json").exists()
    assert not (tmp_path / "out.store").exists()
    assert not (ROOT / "gs:").exists()
    assert [name for name, data in objects(bucket).items() if KEY.encode() in data] == []


def test_a_run_over_what_is_not_ours_ends_with_one_sentence(
    tmp_path: Path, bucket: str, simulator: Server
) -> None:
    store = ("--store", f"gs://{bucket}/answers")
    write_prompts(tmp_path, example_prompts(3))
    assert run_pipeline(tmp_path, simulator.base_url, "--job", "collect", *store).returncode == 0
    spoilt = next(name for name in objects(bucket) if name.endswith("/0001"))
    write(bucket, spoilt, b"not ours")
    done = run_pipeline(tmp_path, simulator.base_url, *store)
    assert done.returncode == 2
    assert f"{spoilt} is not an answer that this program kept" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert objects(bucket)[spoilt] == b"not ours"
