"""What is written when all rows are on disk and counted: names, maps, card, manifest, summary."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pipeline.card import write_card
from pipeline.options import RunConfig
from pipeline.output import MANIFEST, write_json
from pipeline.samples import read_json_lines
from transforms.chat.habits_file import Habits, write_habits
from transforms.chat.profile import ModelProfile, all_special_ids
from transforms.encoding.draft_vocabulary import choose_ids, write_frequencies, write_maps
from transforms.encoding.formats import FORMATS

_LIBRARIES = ("renderers", "tiktoken", "tokenizers", "transformers", "apache-beam", "pyarrow")
"""What ids and files depend on beside our code."""


def finish(
    config: RunConfig,
    folder: Path,
    habits: Habits,
    summary: dict[str, Any],
    argv: Sequence[str],
) -> None:
    """Writes the files that say what the folder is; `summary.json` last: it makes it valid."""
    for name in ("samples", "rejections", *(FORMATS[name].folder for name in config.formats)):
        (folder / name).mkdir(exist_ok=True)
    name_parts(folder, config.formats)
    _write_vocabulary(config, folder)
    for left in (folder / "counts", folder / "token_counts", *folder.glob(".writing-*")):
        shutil.rmtree(left)
    write_habits(habits, folder / "habits.json")
    manifest = _manifest(config, folder, summary, argv)
    write_json(folder / MANIFEST, manifest)
    write_card(folder, config, habits, manifest)
    write_json(folder / "summary.json", summary)
    os.sync()


def name_parts(folder: Path, formats: Sequence[str]) -> None:
    """`part-00000-of-00003` and so on, in the order of the names that Beam gave."""
    for name in formats:
        form = FORMATS[name]
        parts = form.parts(folder)
        for number, path in enumerate(parts):
            path.rename(path.with_name(f"part-{number:05}-of-{len(parts):05}.{form.suffix}"))
        if form.describe:
            form.describe(folder / form.folder, form.parts(folder))


def _write_vocabulary(config: RunConfig, folder: Path) -> None:
    """Into `vocabulary/`, and again beside the Arrow files, where speculators looks for it."""
    counts = np.zeros(config.profile.tokenizer.vocabulary, dtype=np.int64)
    for line in read_json_lines(folder / "token_counts"):
        ids, times = (np.asarray(line[name], dtype=np.int64) for name in ("ids", "counts"))
        counts[ids] += times
    places = [folder / "vocabulary", *([folder / "arrow"] if "arrow" in config.formats else [])]
    for place in places:
        place.mkdir(exist_ok=True)
        write_frequencies(place, counts)
        if config.draft_vocab_size is not None:
            special = all_special_ids(config.profile)
            write_maps(place, choose_ids(counts, config.draft_vocab_size, special), len(counts))


def _manifest(
    config: RunConfig,
    folder: Path,
    summary: dict[str, Any],
    argv: Sequence[str],
) -> dict[str, Any]:
    return {
        "configuration": config.identity(),
        "command": ["python", "-m", "pipeline.main", "run", *argv],
        "code_version": metadata.version("eagle3-data-pipeline"),
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
        "digests": _digests(config.profile, folder),
        "counts": {name: summary[name] for name in ("prompts", "good", "bad", "failed")},
        "formats": summary["formats"],
        "profile": msgspec.to_builtins(config.profile),
        "run_id": config.run_id,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _digests(profile: ModelProfile, folder: Path) -> dict[str, str]:
    """SHA-256 of what ids follow from; the template is the renderer and how it is set."""
    said = {"tokenizer": profile.tokenizer, "template": profile.prompt, "answer": profile.answer}
    digests = {
        name: hashlib.sha256(msgspec.json.encode(part, order="sorted")).hexdigest()
        for name, part in said.items()
    }
    habits = hashlib.sha256((folder / "habits.json").read_bytes()).hexdigest()
    return {"profile": profile.sha256, **digests, "habits": habits, "code": _code_sha256()}


def _code_sha256() -> str:
    """Of all sources of the two packages, by name."""
    roots = (Path(str(resources.files(package))) for package in ("pipeline", "transforms"))
    digest = hashlib.sha256()
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{path.relative_to(root.parent)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
