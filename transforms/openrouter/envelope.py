"""One attempt as one object: a line of JSON, then the body byte for byte, all of it zstd.

`zstd -dc` shows it to a person. JSON, because what a server says may hold lone surrogates, which
msgpack and UTF-8 refuse.
"""

import dataclasses
import json

import msgspec
import zstandard

from transforms.openrouter.store import Attempt


def pack(attempt: Attempt) -> bytes:
    """The object of an attempt; its number is the object's name."""
    head = dataclasses.asdict(attempt)
    body = head.pop("body")
    del head["number"]
    line = json.dumps(head).encode("ascii")
    return zstandard.ZstdCompressor(level=1).compress(line + b"\n" + body)


def unpack(data: bytes) -> Attempt:
    """The attempt of an object.

    Raises:
        ValueError: Not made by `pack`.
    """
    try:
        head, _, body = zstandard.decompress(data).partition(b"\n")
        return msgspec.convert({**json.loads(head), "body": body}, Attempt)
    except (zstandard.ZstdError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
