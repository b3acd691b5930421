"""The files that `--input` names."""

import os
import re
from pathlib import Path

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from transforms.chat.hub import DownloadError, download
from transforms.failures import ConfigError
from transforms.read_prompts import InputFile


def find_files(patterns: str) -> tuple[InputFile, ...]:
    """Every file once, in order; the last label given to it counts."""
    found: dict[str, InputFile] = {}
    whole = os.path.isfile(absolute(patterns))  # noqa: PTH113 - a name may hold a comma
    for pattern in [patterns] if whole else patterns.split(","):
        label, glob = _split_label(pattern.strip())
        if glob:
            for path in _match(glob):
                found[path] = InputFile(path, label or _stem(path), labelled=bool(label))
    if not found:
        raise ConfigError("--input is empty: name at least one file")
    return tuple(found.values())


def _split_label(pattern: str) -> tuple[str, str]:
    label, given, glob = pattern.partition("=")
    is_label = given and "/" not in label and not Path(pattern.partition("/")[0]).is_dir()
    return (label, glob) if is_label else ("", pattern)  # a hive folder is called key=value


def _match(glob: str) -> list[str]:
    """The files of a glob or a folder; a file with brackets in its name is itself first."""
    path = _downloaded(glob) if glob.startswith("hf://") else absolute(glob)
    if os.path.isdir(path):  # noqa: PTH112 - a path may be of another file system
        matches = _inside(path)
    elif os.path.isfile(path):  # noqa: PTH113
        matches = [path]
    else:
        matches = _listed(path)
    if not matches:
        raise ConfigError(f"--input {glob}: no such file ({path})")
    for match in matches:
        if not match.isprintable():
            raise ConfigError(f"--input {match!r}: rename it; rows cannot name such a file")
    return matches


def _listed(path: str) -> list[str]:
    try:
        return sorted(meta.path for meta in FileSystems.match([path])[0].metadata_list)
    except (ValueError, BeamIOError) as error:  # a scheme that Beam does not know; no access
        raise ConfigError(f"--input {path}: {error}") from error


def _downloaded(glob: str) -> str:
    """The local copy of the files of a pinned data set, in Hugging Face's own cache."""
    found = _IN_HUB.fullmatch(glob.removeprefix(_HUB))
    if found is None:
        raise ConfigError(
            f"--input {glob}: name a data set, pin its commit (40 hex digits: a branch or a tag "
            f"may move) and name files or a folder, as in {_HUB}OWNER/NAME@COMMIT/data/*.parquet"
        )
    name, commit, files = found.groups()
    inside = files.rstrip("/")
    try:
        folder = download(
            name, repo_type="dataset", revision=commit, allow_patterns=[inside, f"{inside}/*"]
        )
    except DownloadError as error:
        raise ConfigError(f"--input {glob}: {error}") from error
    return f"{folder}/{inside}"


_HUB = "hf://datasets/"
_IN_HUB = re.compile(r"([^/@]+/[^/@]+)@([0-9a-f]{40})/(.+)")
"""Nothing else tells that data is what it was; a tokenizer's revision may move, its digest not."""


def _inside(folder: str) -> list[str]:
    """All files in a folder, at any depth; not what is hidden or only marks a finished job."""
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    return sorted(
        str(path)
        for path in paths
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )


def _stem(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    return name.split(".", 1)[0] or name


def absolute(path: str) -> str:
    """The path as it means the same on every worker; `scheme://` is left alone."""
    return path if "://" in path else os.path.abspath(Path(path).expanduser())  # noqa: PTH100
