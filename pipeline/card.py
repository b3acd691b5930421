"""The data set card: `README.md` of an output, for people and for the Hub's viewer."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.options import RunConfig
from transforms.chat.habits_file import Habits, describe, is_usable
from transforms.encoding.columns import SCHEMA
from transforms.encoding.formats import FORMATS

_CARD = """---
{configs}
---

# {samples} answers of {model}, as the token ids that were sampled

Made by eagle3-data-pipeline {version}, profile `{profile}`; what it depends on is in
`manifest.json`, the command line too.

## Load

Ids before `prompt_length` are the prompt, those from it on were sampled; nothing is shifted.
`loss_mask`, where it is written, has the dialect `{dialect}`.

| format | files | rows | opened by |
|---|---|---|---|
{formats}

`vocabulary/` has how often each id was sampled (`token_freq.pt`), and maps between the ids of
model and drafter if they were asked for.

## Counts

{counts}

Good samples have evidence that their ids are the sampled ones; the others are in `rejections/`,
each with its reason. A text format leaves out samples whose text would give other ids, and lists
them in `left_out/`.

## Providers

| provider, model | habit | use or avoid |
|---|---|---|
{habits}

`habits.json` says on how many answers each rests.

## Schema

| column | type |
|---|---|
{schema}

## Licence

The answers are output of {model}: its licence and the terms of the providers above hold for them,
and the licences of the prompts' sources ({datasets}) for the prompts. This card grants nothing.
"""


def write_card(folder: Path, config: RunConfig, habits: Habits, manifest: dict[str, Any]) -> None:
    """Says what the folder holds and how to load it."""
    card = _CARD.format(
        configs=_configs(config.formats),
        samples=manifest["counts"]["good"],
        model=config.sampling.model,
        version=manifest["code_version"],
        profile=config.profile.name,
        dialect=config.loss_mask,
        formats="\n".join(_format_row(*item) for item in manifest["formats"].items()),
        counts=", ".join(f"{count} {name}" for name, count in manifest["counts"].items()) + ".",
        habits="\n".join(_habit_rows(habits)),
        schema="\n".join(f"| `{field.name}` | {_type(field.type)} |" for field in SCHEMA),
        datasets=", ".join(sorted({file.dataset for file in config.files})),
    )
    (folder / "README.md").write_text(card, "utf-8")


def _configs(formats: tuple[str, ...]) -> str:
    """What `load_dataset` opens: it takes one kind of file a folder."""
    names = [name for name in ("parquet", "jsonl") if name in formats]
    if not names:
        return "configs: []"
    form = FORMATS[names[0]]
    return f"configs:\n- config_name: default\n  data_files: {form.folder}/*.{form.suffix}"


def _format_row(name: str, rows: int) -> str:
    form = FORMATS[name]
    return f"| {name} | `{form.folder}/*.{form.suffix}` | {rows} | {form.loads} |"


def _type(kind: pa.DataType) -> str:
    return f"`list<{kind.value_type}>`" if pa.types.is_list(kind) else str(kind)


def _habit_rows(habits: Habits) -> list[str]:
    return [
        f"| {_cell(stratum.provider)}, {_cell(stratum.model)} | {describe(learned)} "
        f"| {'use' if is_usable(learned) else 'avoid'} |"
        for stratum, learned in sorted(habits.strata, key=lambda item: item[0])
    ]


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
