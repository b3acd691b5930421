"""CallOpenRouter: prompts -> exchanges; the one stage with an event loop.

A bundle's prompts are all on their way at once, up to the limit; each is emitted as its answer
comes, in `process` or in `finish_bundle`. One task owns one conversation and asks for its
generations in order, since each prompt holds the answers before it. Beam's own pieces wait for the
slowest of a batch, call one at a time, or lose outputs in batch.
"""

import queue
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from transforms.chat.escaping import escape_special_text
from transforms.chat.next_turn import next_turn
from transforms.chat.profile import ModelProfile, special_literals
from transforms.chat.render import refuse_long
from transforms.failures import Failure, FailureKind, RecordError, Stage, fail, fail_each
from transforms.generations import first_turn
from transforms.openrouter.call_config import CallConfig
from transforms.openrouter.client import OpenRouterClient
from transforms.openrouter.loop import ClientLoop, Tasks
from transforms.openrouter.replies import read_completion
from transforms.openrouter.wire import Request, Sampling, is_of_model, write_request
from transforms.outcome import FAILED, GOOD, Outcome
from transforms.records import Completion, Exchange, Prompt

_WAITING_EACH, _WAITING = 16, 4096
"""Prompts that are under way for each that may be sent, and at most beside those: they wait to be
tried again, which takes no place, and must not hold up the others. Each is a task of about 10 KB.
"""


class CallOpenRouter(beam.PTransform):
    """Asks the model each generation, or looks its answer up; see `converse`.

    `max_prompt_tokens`: prompts of later turns that have more are refused.
    """

    def __init__(
        self,
        call: CallConfig,
        sampling: Sampling,
        profile: ModelProfile,
        max_prompt_tokens: int | None = None,
    ) -> None:
        super().__init__()
        self._fn = _CallFn(call, _Asking(sampling, profile, max_prompt_tokens))

    def expand(self, prompts: PCollection[Prompt]) -> Outcome[Exchange]:
        results = prompts | beam.ParDo(self._fn).with_output_types(
            Exchange, failed=Failure
        ).with_outputs(FAILED, main=GOOD)
        return Outcome(results[GOOD], results[FAILED])


@dataclass(frozen=True, slots=True)
class _Asking:
    """How generations are asked for."""

    sampling: Sampling
    profile: ModelProfile
    max_prompt_tokens: int | None = None


async def converse(
    prompt: Prompt, client: OpenRouterClient, asking: _Asking
) -> AsyncIterator[Exchange | Failure]:
    """The wanted generations of a conversation, each as it comes.

    One that cannot be asked, and all after it, are failures with the reason.
    """
    while True:
        result = await call_openrouter(prompt, client, asking.sampling, asking.profile)
        if prompt.turn == first_turn(prompt):
            yield result
        if not prompt.later:
            return
        try:
            following = _go_on(prompt, result, asking)
        except RecordError as error:
            rest = replace(prompt, wanted=max(prompt.wanted, prompt.turn + 1))
            for failure in fail_each(rest, Stage.CALL, error):
                client.leave_out()
                yield failure
            return
        prompt = following


_NOT_SENT = frozenset({
    FailureKind.SERVICE_STOPPED,
    FailureKind.SPEND_CAP,
    FailureKind.INTERRUPTED,
    FailureKind.NOT_COLLECTED,
})  # fmt: skip
"""What holds up a turn and all turns after it: the run, not what was answered."""


def _go_on(prompt: Prompt, result: Exchange | Failure, asking: _Asking) -> Prompt:
    if isinstance(result, Failure):
        if result.kind in _NOT_SENT:
            raise RecordError(result.kind, result.detail)
        detail = f"turn {prompt.turn} has no answer: {result.kind}: {result.detail}"
        raise RecordError(FailureKind.HISTORY_UNKNOWN, detail)
    following = next_turn(prompt, result, asking.profile)
    refuse_long(following, asking.profile, asking.max_prompt_tokens)
    return following


async def call_openrouter(
    prompt: Prompt, client: OpenRouterClient, sampling: Sampling, profile: ModelProfile
) -> Exchange | Failure:
    """One prompt's answer, or why there is none."""
    request: Request | None = None
    try:
        prompt, request = prepare(prompt, sampling, profile)
        answer = await client.answer(request)
        completion = read_completion(answer.reply)
        _refuse_other_model(completion, sampling, client)
        if completion.provider is None and not sampling.source.names_provider:
            completion = replace(completion, provider=client.host)
    except RecordError as error:
        return fail(prompt, Stage.CALL, error, request.sha256 if request else None)
    return Exchange(
        prompt=replace(prompt, later=()) if prompt.later else prompt,
        completion=completion,
        max_tokens=sampling.max_tokens,
        request_sha256=request.sha256,
        settings=sampling.extra,
        arrival=answer.arrival,
        seed=sampling.of_sample(prompt.sample_index).seed,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
    )


def prepare(prompt: Prompt, sampling: Sampling, profile: ModelProfile) -> tuple[Prompt, Request]:
    """What is asked, and its bytes.

    Raises:
        RecordError: `INVALID_PROMPT`, `PROMPT_SPECIAL_TEXT`.
    """
    if sampling.escapes_special_text:
        prompt = escape_special_text(prompt, profile)
    request = write_request(prompt, sampling)
    refuse_special_text(request.body.decode(), profile)
    return prompt, request


def _refuse_other_model(
    completion: Completion, sampling: Sampling, client: OpenRouterClient
) -> None:
    if not sampling.source.names_model:
        return
    if is_of_model(sampling.model, completion.model):
        client.see_model(None)
        return
    asked = sampling.model.partition(":")[0]
    wrong = f"{asked} was asked, {completion.model or ''!r} answered"
    client.see_model(wrong)
    raise RecordError(FailureKind.WRONG_MODEL, wrong)


def refuse_special_text(body: str, profile: ModelProfile) -> None:
    """Refuses a request before it is paid for if a server may read control tokens out of it.

    Raises:
        RecordError: `PROMPT_SPECIAL_TEXT`.
    """
    # A schema that is referred to is written `Array<NAME>` by templates with TypeScript tools.
    referred = "".join(f"<{name}>" for name in _REFERENCE.findall(body))
    if found := special_literals(profile).search(body + referred):
        around = (body + referred)[max(0, found.start() - 20) : found.end() + 20]
        raise RecordError(FailureKind.PROMPT_SPECIAL_TEXT, f"{found[0]!r} in …{around}…")


_REFERENCE = re.compile(r'"\$ref":"[^"]*/([^"/]+)"')


@dataclass(frozen=True, slots=True)
class _Done:
    """What a generation came to, in the window its prompt came in.

    `result` may be a bug's exception; `None`: the conversation has no more.
    """

    result: Exchange | Failure | BaseException | None
    timestamp: Any
    window: Any
    pane: Any


class _CallFn(beam.DoFn):
    def __init__(self, call: CallConfig, asking: _Asking) -> None:
        self._call = call
        self._asking = asking

    def setup(self) -> None:
        self._loop = ClientLoop.get(self._call)
        most = self._call.max_in_flight
        self._most = min(most * _WAITING_EACH, most + _WAITING)

    def start_bundle(self) -> None:
        # A queue a bundle: a late result of an aborted bundle cannot leak into the next one.
        self._done: queue.SimpleQueue[_Done] = queue.SimpleQueue()
        self._tasks: Tasks = set()
        self._pending = 0

    def process(
        self,
        prompt: Prompt,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[Any]:
        if self._pending >= self._most:  # prompts in bursts: their look-ups are one query
            while self._pending > max(self._call.max_in_flight, self._most * 3 // 4):
                yield from self._take()
        while not self._done.empty():
            yield from self._take()
        self._loop.start(self._run(prompt, timestamp, window, pane), self._tasks)
        self._pending += 1

    def finish_bundle(self) -> Iterator[Any]:
        while self._pending:
            yield from self._take()

    def teardown(self) -> None:
        """After a failed bundle: stops paying for what nobody will read."""
        if tasks := getattr(self, "_tasks", None):
            self._loop.cancel(tasks)

    async def _run(self, prompt: Prompt, timestamp: Any, window: Any, pane: Any) -> None:
        done = self._done
        try:
            async for result in converse(prompt, self._loop.client, self._asking):
                done.put(_Done(result, timestamp, window, pane))
            done.put(_Done(None, timestamp, window, pane))
        except BaseException as error:  # noqa: BLE001 - raised again where the bundle can fail
            done.put(_Done(error, timestamp, window, pane))

    def _take(self) -> Iterator[Any]:
        done = self._next()
        if done.result is None:
            self._pending -= 1
            return
        if isinstance(done.result, BaseException):
            raise done.result
        output = WindowedValue(done.result, done.timestamp, (done.window,), done.pane)
        yield TaggedOutput(FAILED, output) if isinstance(done.result, Failure) else output

    def _next(self) -> _Done:
        while True:
            try:
                return self._done.get(timeout=5)
            except queue.Empty:
                if not self._loop.is_alive:
                    raise RuntimeError("the thread of the calls has died") from None
