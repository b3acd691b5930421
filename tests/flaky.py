"""A proxy between a store and its bucket that loses a reply, or holds requests back."""

import contextlib
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
_PATIENCE_S = 20.0


class FlakyProxy(ThreadingHTTPServer):
    """Passes everything on to `target`.

    Attributes:
        losses: How many of the next uploads arrive, but are answered with 503.
        arrived, go_on: Set when an upload has come; uploads wait until the other one is set.
        waited_in_vain: A request nobody let go on.
    """

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.losses = 0
        self.uploads = 0
        self.arrived = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.waited_in_vain = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def serve_flaky(target: str) -> Iterator[FlakyProxy]:
    with FlakyProxy(target) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: FlakyProxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(*self._pass_on(None))

    def do_POST(self) -> None:
        proxy = self.server
        body = self.rfile.read(int(self.headers["content-length"]))
        proxy.arrived.set()
        proxy.waited_in_vain |= not proxy.go_on.wait(_PATIENCE_S)
        answer = self._pass_on(body)
        proxy.uploads += 1
        if proxy.losses:
            proxy.losses -= 1
            answer = 503, b""
        self._answer(*answer)

    def log_message(self, *_: object) -> None:
        """Tests are silent."""

    def _pass_on(self, body: bytes | None) -> tuple[int, bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        url = self.server.target + self.path
        request = urllib.request.Request(url, body, headers)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request) as reply:  # noqa: S310
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
