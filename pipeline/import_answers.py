"""Sub-command `import`: answers that people already have -> the store, and the prompts to run."""

import argparse
import asyncio
import contextlib
import itertools
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import track

from pipeline.import_files import prompts_file, refuse_foreign, refused_file
from pipeline.inputs import absolute
from pipeline.options import RunConfig, read_options
from pipeline.output import claim_store
from pipeline.recordings import Found, read_pairs
from transforms.call_openrouter import prepare
from transforms.failures import ConfigError, RecordError
from transforms.openrouter.faults import judge
from transforms.openrouter.importing import (
    Refusal,
    RefusedError,
    Terms,
    check_answer,
    check_prompt,
    check_request,
    is_same_answer,
)
from transforms.openrouter.open_store import open_store
from transforms.openrouter.recorded import Recorded
from transforms.openrouter.store import IMPORTED, Attempt, ResponseStore
from transforms.openrouter.wire import Request
from transforms.prompts.shapes import read_prompt

COMPLETE, NOTHING_IMPORTED = 0, 3
_EPILOG = """\
What is read: logs of requests and answers (JSON lines, JSON or Parquet; `request` and `response`,
`kwargs`, `input` and `output`, bodies inside them), cassettes, HAR files, OpenAI batches (the input
file, then the output file, joined by custom_id), streams as the text of their events or as lists of
chunks, answers alone.

Every other flag is one of `run`, as --model, --profile, --temperature, --extra_body, --source: give
those that the answers were asked with. `run` with the same flags finds every answer in the store.

An answer whose request or count is not known is imported, and never called good. Pairs that do not
belong together, failures, repetitions, answers of other models or settings, and answers to what a
run would send otherwise are refused one by one, each with its reason in a file beside the prompts.

  python -m pipeline.main import batch.jsonl batch_output.jsonl --store out.store
  python -m pipeline.main import log.jsonl --store out.store --temperature 0.6 \\
      --extra_body '{"reasoning": {"effort": "high"}}'
"""
_ASKED = ("messages", "tools")


@dataclass(slots=True)
class _Import:
    """What is done so far."""

    config: RunConfig
    terms: Terms
    store: ResponseStore
    imported: int = 0
    known: int = 0
    unprovable: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)

    def know(self, key: str) -> None:
        """The answer is in the store; a row asks for it, if none does yet.

        Raises:
            RefusedError: `REPEATED`.
        """
        if key in self.keys:
            detail = "the same answer to the same prompt stands before it"
            raise RefusedError(Refusal.REPEATED, detail)
        self.keys.add(key)
        self.known += 1

    def name(self, wanted: str) -> str:
        """That, or the first of `wanted#2`, `wanted#3`, … that is free."""
        numbered = (f"{wanted}#{number}" for number in itertools.count(2))
        name = next(one for one in itertools.chain([wanted], numbered) if one not in self.names)
        self.names.add(name)
        return name


def run(argv: Sequence[str]) -> int:
    """Imports the files and returns the exit code.

    Raises:
        ConfigError: Before anything was written.
    """
    flags, rest = _parser().parse_known_args(argv)
    for name in flags.files:
        if not Path(absolute(name)).is_file():
            raise ConfigError(f"{name}: no such file")
    config = read_options([
        "--input", flags.files[0], "--output", f"{flags.store}.out", "--store", flags.store, *rest
    ])  # fmt: skip
    prompts = prompts_file(flags, config.call.store)
    refuse_foreign(prompts, flags.files)
    with (
        claim_store(config.call.store, config.job),
        contextlib.closing(open_store(config.call.store)) as store,
    ):
        done = _Import(config, _terms(config), store)
        asyncio.run(_import(flags.files, prompts, done))
    _say(done, prompts, flags.store, rest)
    return COMPLETE if done.names else NOTHING_IMPORTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.main import",
        description="Puts recorded answers into a store, where `run` finds them instead of asking.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="Recorded requests and answers.")
    parser.add_argument("--store", required=True, metavar="DIR|gs://BUCKET/PREFIX",
        help="Response store to put the answers into; made if it is not there.")  # fmt: skip
    parser.add_argument("--prompts", metavar="FILE",
        help="Prompts to write for `run --input`. Default: STORE/prompts-DIGEST.jsonl, a name of "
             "its own for every list of files.")  # fmt: skip
    return parser


def _terms(config: RunConfig) -> Terms:
    return Terms(
        sampling=config.sampling,
        defaults=config.profile.request,
        host=urlsplit(config.call.wire.base_url).hostname or "",
        thinks=config.call.wire.thinks,
    )


async def _import(files: Sequence[str], prompts: Path, done: _Import) -> None:
    """Both files appear when all is read; what is in the store by then stays whatever happens."""
    paths = (prompts, refused_file(prompts))
    writing = [path.with_name(f".{path.name}.writing") for path in paths]
    shown = Console(stderr=True)
    with writing[0].open("wb") as rows, writing[1].open("wb") as refused:
        for place, found in track(
            read_pairs(files), "importing", console=shown, disable=not sys.stderr.isatty()
        ):
            try:
                row, file = await _import_one(place, found, done), rows
            except RefusedError as error:
                done.refused[error.refusal] += 1
                row, file = _reason(place, error), refused
            file.write(json.dumps(row).encode() + b"\n")
    for made, path in zip(writing, paths, strict=True):
        made.rename(path)


def _reason(place: str, error: RefusedError) -> dict[str, Any]:
    return {"source": place, "refusal": error.refusal.value, "detail": error.detail}


async def _import_one(place: str, found: Found, done: _Import) -> dict[str, Any]:
    """The row of the prompts file.

    Raises:
        RefusedError: With its reason.
    """
    if isinstance(found, RefusedError):
        raise found
    if found.answer is None:
        detail = "its answer is in none of the files" if found.request else "no request, no answer"
        raise RefusedError(Refusal.NO_ANSWER if found.request else Refusal.UNREADABLE, detail)
    if found.request is None:
        return _without_request(place, found, done)
    check_request(found, done.terms)
    body = {name: found.request[name] for name in _ASKED if found.request.get(name)}
    row = {"custom_id": found.name or place, "body": body}
    request = _request(row, place, done)
    check_prompt(found, request.body)
    attempt = _attempt(request, found, done)
    answer = check_answer(found, attempt, done.terms)
    index = await _put(request, attempt, answer, done)
    return {"custom_id": done.name(found.name or place), "body": body, "sample_index": index}


def _without_request(place: str, found: Recorded, done: _Import) -> dict[str, Any]:
    """A row that `run` refuses and keeps: nothing is lost, and nothing of it is good."""
    check_answer(found, _attempt(Request(b""), found, done), done.terms)
    done.unprovable += 1
    answer = (found.answer or b"").decode(errors="replace")
    return {"id": done.name(found.name or place), "answer_without_request": answer}


def _request(row: dict[str, Any], place: str, done: _Import) -> Request:
    """What a run would send for the row.

    Raises:
        RefusedError: `NOT_A_PROMPT`.
    """
    try:
        prompt = read_prompt(row, place, "")
        return prepare(prompt, done.config.sampling, done.config.profile)[1]
    except RecordError as error:
        raise RefusedError(Refusal.NOT_A_PROMPT, f"{error.kind}: {error.detail}") from error


def _attempt(request: Request, found: Recorded, done: _Import) -> Attempt:
    """When the answer came is not known: chunks without times prove nothing."""
    now = time.time()
    return Attempt(
        request_sha256=request.sha256,
        run_id=f"{IMPORTED}{done.config.run_id}",
        status=found.status,
        error=None,
        headers=(),
        body=found.answer or b"",
        started_at=now,
        ended_at=now,
    )


async def _put(request: Request, attempt: Attempt, answer: Any, done: _Import) -> int:
    """The sample of its prompt that the answer is: the one it is already, or the first free one.

    Raises:
        RefusedError: `OTHER_SETTINGS`: with a fixed seed each sample is asked with one of its own.
            `REPEATED`: the files have it twice.
    """
    for index in itertools.count():
        if index and done.config.sampling.seed is not None:
            detail = f"another answer with its seed is there; sample {index} has another seed"
            raise RefusedError(Refusal.OTHER_SETTINGS, detail)
        key = replace(request, sample_index=index).sha256
        tried = [judge(one, thinks=done.terms.thinks) for one in await done.store.look_up(key)]
        kept = [judged.reply for judged in tried if judged.reply is not None]
        if any(is_same_answer(answer, one) for one in kept):
            done.know(key)
            return index
        if not kept:
            await done.store.put(replace(attempt, request_sha256=key))
            done.imported += 1
            done.keys.add(key)
            return index
    raise AssertionError("there is always another index")


def _say(done: _Import, prompts: Path, store: str, rest: Sequence[str]) -> None:
    print(f"{done.imported} answers imported into {store}, {done.known} were there already")
    if done.unprovable:
        print(f"{done.unprovable} answers have no request: `run` will refuse them")
    if done.refused:
        told = ", ".join(f"{count} {name}" for name, count in done.refused.most_common())
        print(f"{done.refused.total()} refused ({told}): {refused_file(prompts)}")
    if done.names:
        command = ["--input", str(prompts), "--store", store, "--output", "DIR", *rest]
        print(f"next: python -m pipeline.main run {shlex.join(command)}")
