"""`--dry_run`: what a run would do and may cost. Sends no prompt, writes nothing."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pipeline.options import RunConfig
from pipeline.preparation import NO_RECORDS, check_model, select_records
from transforms.call_openrouter import prepare
from transforms.chat.render import render_prompt
from transforms.failures import ConfigError, Failure, RecordError
from transforms.generations import generations, history
from transforms.openrouter.keys import NO_KEY, resolve_key
from transforms.openrouter.preflight import Preflight, preflight
from transforms.openrouter.projection import project
from transforms.openrouter.sender import Sender, Wire
from transforms.prompts.duplicates import Seen, names_of
from transforms.read_prompts import check_seen, labels_of, read_file
from transforms.records import Prompt


@dataclass(slots=True)
class _Prompts:
    """What the inputs hold; `refused` has the first of each code, as an example."""

    records: int = 0
    asked: int = 0
    tokens: int = 0
    longest: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def ask(self, tokens: int) -> None:
        self.asked += 1
        self.tokens += tokens
        self.longest = max(self.longest, tokens)

    def refuse(self, code: str, source: str, detail: str) -> None:
        self.refused[code] += 1
        self.examples.setdefault(code, f"{source}: {detail}")


def rehearse(config: RunConfig) -> int:
    """Prints what would be asked, what is refused and why, whether the key is there, the cost.

    Raises:
        ConfigError: The run could not start.
    """
    check_model(config)
    found = _read(select_records(config))
    if not found.records:
        raise ConfigError(NO_RECORDS)
    print(f"{found.records} records, {found.asked} prompts to ask")
    for code, count in sorted(found.refused.items()):
        print(f"refused: {count} {code}, the first {found.examples[code]}")
    mean = found.tokens / found.asked if found.asked else 0
    print(f"prompt tokens: {found.tokens}, {mean:.0f} a prompt, {found.longest} the longest")
    _say_service(config, found)
    return 0


def _read(config: RunConfig) -> _Prompts:
    found = _Prompts()
    place = ""
    for read in _prompts(config):
        found.records += read.source != place
        place = read.source
        if isinstance(read, Failure):
            found.refuse(read.kind, read.source, read.detail)
        else:
            _rehearse(read, config, found)
    return found


def _rehearse(prompt: Prompt, config: RunConfig, found: _Prompts) -> None:
    """The first turn as it will be sent; later ones with recorded answers for the model's own."""
    try:
        asked, _ = prepare(prompt, config.sampling, config.profile)
        for one in generations(asked):
            shown = replace(one, messages=history(one, one.wanted), later=())
            found.ask(len(render_prompt(shown, config.profile)))
    except RecordError as error:
        found.refuse(error.kind, prompt.source, error.detail)


def _prompts(config: RunConfig) -> Iterator[Prompt | Failure]:
    """Each prompt once."""
    seen = Seen(names_of(labels_of(config.files), by_content=config.reading.by_content))
    for file in config.files:
        for read in read_file(file, config.reading):
            yield from check_seen(seen, read)


def _say_service(config: RunConfig, found: _Prompts) -> None:
    wire = _say_key(config.call.wire)
    if not wire.source.has_catalogue:
        print(f"cost: --source {wire.source.name} tells no prices")
        return
    told = asyncio.run(_ask(wire))
    if told.stop is not None:
        print(f"the run would stop: {told.stop}")
    if told.prices is None:
        print(f"cost: {wire.base_url} told no prices")
        return
    projection = project(told.prices, found.asked, found.tokens, wire.max_tokens)
    print(f"cost: {projection.describe(config.call.max_cost_usd)}")


def _say_key(wire: Wire) -> Wire:
    """The same server, without the key if it cannot be read."""
    try:
        key = resolve_key(wire.api_key)
    except ConfigError as error:
        print(f"key: {error}")
        return replace(wire, api_key=NO_KEY)
    print(f"key: {wire.api_key} {'can be read' if key else '(the server asks for none)'}")
    return wire


async def _ask(wire: Wire) -> Preflight:
    """Free calls alone."""
    sender = Sender(wire)
    try:
        return await preflight(sender, wire)
    finally:
        await sender.close()
