"""What needs a socket: broken connections, time, clients that leave, the paths beside."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from simulator.faults import FAULTS
from simulator.faults.delivery import DELIVERIES
from tests.programs import Server, serve_simulator
from tests.simulated import request_of

FORCED = [fault.name for fault in DELIVERIES] + ["stream_split", "stream_cut"]
SCENARIO = {
    "latency": {"median_s": 20, "sigma": 0},
    "speed": 40,
    "providers": [{"name": "Chutes", "price": [0.4, 2.0]}],
    "expiration_date": "2026-12-31",
    "limits": {"key_limit_usd": 5},
    "logs_content": True,
    "force": [{"match": f"fault:{name}.", "fault": name} for name in FORCED],
}
"""An answer takes half a second."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path: Path = tmp_path_factory.mktemp("sim") / "scenario.yaml"
    path.write_text(json.dumps(SCENARIO), "utf-8")  # JSON is YAML
    with serve_simulator("--scenario", str(path)) as running:
        yield running


def connect(server: Server, text: str, **fields: Any) -> socket.socket:
    """Sends a request and reads nothing."""
    address = urlsplit(server.base_url)
    body = request_of(text, **fields)
    connection = socket.create_connection((address.hostname, address.port), timeout=5)
    head = (
        f"POST {address.path}/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def read_all(connection: socket.socket, end: bytes = b"\r\n0\r\n\r\n") -> bytes:
    """Until the end of the body or of the connection."""
    raw = b""
    with connection:
        while not raw.endswith(end) and (part := connection.recv(65536)):
            raw += part
    return raw


def wait_until(holds: Callable[[], bool]) -> None:
    """Asks again and again; asking is the waiting."""
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline


def get(server: Server, path: str, key: str = "k") -> tuple[int, dict[str, Any]]:
    address = urlsplit(server.base_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 0)
    connection.request("GET", address.path + path, headers={"Authorization": f"Bearer {key}"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_resets(server: Server) -> None:
    for name in ("reset_before_headers", "reset_after_headers", "reset_mid_body"):
        connection = connect(server, f"fault:{name}.")
        start = b"" if name == "reset_before_headers" else connection.recv(9)
        assert start == (b"" if name == "reset_before_headers" else b"HTTP/1.1 ")
        with pytest.raises(ConnectionResetError):
            read_all(connection)


def test_closes_without_the_final_chunk(server: Server) -> None:
    whole = read_all(connect(server, "fault:close_without_end."))
    assert whole.endswith(b"}\r\n")
    assert b"upstream_inference_cost" in whole
    cut = read_all(connect(server, "fault:close_mid_body."))
    assert b"HTTP/1.1 200" in cut
    assert b'"usage"' not in cut or not cut.endswith(b"}}}\r\n")


@pytest.mark.parametrize(
    ("name", "start"), [("hang", b""), ("hang_after_headers", b"HTTP"), ("drip", b"HTTP")]
)
def test_hangs(server: Server, name: str, start: bytes) -> None:
    before = server.ledger()["in_flight"]
    connection = connect(server, f"fault:{name}.")
    connection.settimeout(0.5)
    assert (connection.recv(4) if start else b"") == start
    connection.settimeout(0.02)
    with pytest.raises(TimeoutError):
        read_all(connection)
    wait_until(lambda: server.ledger()["in_flight"] == before)


def test_a_stream_is_spread_over_its_time(server: Server) -> None:
    start = time.monotonic()
    connection = connect(server, "spread", stream=True)
    moments = []
    while part := connection.recv(65536):
        moments.append(time.monotonic() - start)
        if b"[DONE]" in part:
            break
    connection.close()
    assert len(moments) > 20
    assert moments[0] < 0.25
    assert 0.45 < moments[-1] < 3


def test_a_client_that_leaves_a_stream_pays_for_its_part(server: Server) -> None:
    before = server.ledger()["charged_usd"]
    connection = connect(server, "leaves", stream=True)
    while b"data: " not in connection.recv(65536):
        pass
    in_full = server.ledger()["charged_usd"]
    connection.close()
    wait_until(lambda: server.ledger()["charged_usd"] < in_full)
    assert 0 < server.ledger()["charged_usd"] - before < (in_full - before) * 0.8


def test_a_client_that_leaves_a_whole_answer_pays_for_all(server: Server) -> None:
    before, truth = server.ledger(), server.truth()
    connection = connect(server, "leaves whole")
    connection.recv(50)
    connection.close()
    wait_until(lambda: server.ledger()["in_flight"] == before["in_flight"])
    after = server.ledger()
    assert after["charged"] == before["charged"] + 1
    assert after["wasted_usd"] > before["wasted_usd"]
    assert server.truth() == truth


def test_padding_comes_while_it_samples(server: Server) -> None:
    raw = read_all(connect(server, "padding"))
    assert raw.count(b"\n         \n") >= 2
    assert b"X-Generation-Id: gen-" in raw
    assert b"cf-ray: " in raw
    assert b"Content-Length" not in raw


def test_a_generation_is_known_later(server: Server) -> None:
    raw = read_all(connect(server, "known"))
    identity = raw.split(b"X-Generation-Id: ")[1].split(b"\r\n")[0].decode()
    assert get(server, f"/generation?id={identity}")[0] == 404
    wait_until(lambda: get(server, f"/generation?id={identity}")[0] == 200)
    found = get(server, f"/generation?id={identity}")[1]
    assert found["data"]["provider_name"] == "Chutes"
    assert found["data"]["native_tokens_completion"] > 0
    assert get(server, "/generation?id=gen-1")[0] == 404
    message = json.loads(raw[raw.index(b"{") : raw.rindex(b"}") + 1])["choices"][0]["message"]
    content = get(server, f"/generation/content?id={identity}")[1]["data"]
    assert content["output"]["reasoning"] == message["reasoning"]
    assert content["output"]["completion"] == message["content"] + "<|im_end|>"
    assert "known" in content["input"]["prompt"]
    assert get(server, "/generation/content?id=gen-1")[0] == 404


def test_the_catalogue(server: Server) -> None:
    model = get(server, "/models")[1]["data"][0]
    assert (model["id"], model["expiration_date"]) == ("moonshotai/kimi-k2.5", "2026-12-31")
    assert float(model["pricing"]["completion"]) == pytest.approx(2e-6)
    endpoint = get(server, "/models/moonshotai/kimi-k2.5/endpoints")[1]["data"]["endpoints"][0]
    assert (endpoint["provider_name"], endpoint["tag"]) == ("Chutes", "chutes/int4")
    assert get(server, "/models/a/b/endpoints")[0] == 404
    assert get(server, "/credits")[0] == 403
    assert get(server, "/key")[1]["data"]["limit"] == 5


def test_every_fault_survives_the_socket(tmp_path: Path) -> None:
    """Each fault once, whole and streamed, and the server still answers."""
    force = [{"match": f"fault:{name}.", "fault": name} for name in FAULTS]
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps({"speed": 1000, "force": force}), "utf-8")
    with serve_simulator("--scenario", str(path)) as server:
        waiting = []
        for name in FAULTS:
            for stream in (False, True):
                connection = connect(server, f"fault:{name}.", stream=stream)
                connection.settimeout(0.1)
                waiting.append(connection)
        for connection in waiting:
            try:
                read_all(connection)
            except (TimeoutError, ConnectionResetError):
                connection.close()
        assert read_all(connect(server, "fine")).endswith(b"0\r\n\r\n")
        ledger = server.ledger()
    assert set(ledger["faults"]) >= {name for name in FAULTS if name != "empty_tool_id"}
