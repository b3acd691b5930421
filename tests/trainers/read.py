"""Opens an output with a trainer's own reader, and writes the ids and masks that it makes of it.

`PYTHON read.py READER OUTPUT TOKENIZER RESULT`, by the Python that has the trainers.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LONGEST = 100_000
Row = tuple[list[int], list[int]]


def specforge(output: Path, _tokenizer: Path) -> Iterator[Row]:
    from specforge.data.prompt_builder import prepare_prompt_tasks

    for path in sorted((output / "samples").glob("*.jsonl")):
        tasks = prepare_prompt_tasks(
            path,
            None,
            chat_template=None,
            max_length=LONGEST,
            is_preformatted=False,
            train_only_last_turn=False,
            cache_dir=None,
            cache_key=None,
            num_proc=None,
        )
        for task in tasks:
            yield task["payload"]["input_ids"], task["payload"]["loss_mask"]


def specforge_text(output: Path, tokenizer: Path) -> Iterator[Row]:
    from specforge.data.preprocessing import preprocess_conversations
    from specforge.data.template import TEMPLATE_REGISTRY

    texts = [json.loads(line)["text"] for line in _lines(output / "specforge_text")]
    made = preprocess_conversations(
        _load(tokenizer),
        texts,
        TEMPLATE_REGISTRY.get("kimi-k2-instruct"),
        max_length=LONGEST,
        is_preformatted=True,
        train_only_last_turn=True,
        tools=[[]] * len(texts),
    )
    for ids, mask in zip(made["input_ids"], made["loss_mask"], strict=True):
        yield ids[0].tolist(), mask[0].tolist()


def speculators(output: Path, tokenizer: Path) -> Iterator[Row]:
    import datasets
    from speculators.data_generation.preprocessing import build_speculator_training_dataset

    files = [str(path) for path in sorted((output / "samples").glob("*.jsonl"))]
    rows = datasets.load_dataset("json", data_files=files, split="train")
    made = build_speculator_training_dataset(rows, _load(tokenizer), LONGEST, num_proc=1)
    for row in made:
        yield row["input_ids"].tolist(), row["loss_mask"].tolist()


def speculators_arrow(output: Path, _tokenizer: Path) -> Iterator[Row]:
    import torch
    from safetensors.torch import save_file
    from speculators.train.data import ArrowDataset

    data = ArrowDataset(LONGEST, output / "arrow", on_missing="raise")
    states = output / "arrow" / "hidden_states"
    states.mkdir()
    for number in range(len(data)):
        ids = data.data[number]["input_ids"]
        tensors = {"token_ids": ids, "hidden_states": torch.zeros(len(ids), 4, 8)}
        save_file(tensors, states / f"hs_{number}.safetensors")
        row: Any = data[number]
        assert row["lengths"].tolist() == [len(ids)]
        yield row["input_ids"].tolist(), row["loss_mask"].tolist()


def nemo(output: Path, tokenizer: Path) -> Iterator[Row]:
    from nemo_automodel.components.datasets.llm.chat_dataset import ChatDataset

    folder = output / "messages"
    rows = ChatDataset(
        [str(path) for path in sorted(folder.glob("*.jsonl"))],
        _load(tokenizer),
        chat_template=(folder / "chat_template.jinja").read_text("utf-8"),
        unshifted=True,
    )
    for number in range(len(rows)):
        yield list(rows[number]["input_ids"]), list(rows[number]["loss_mask"])


def modelopt(output: Path, tokenizer: Path) -> Iterator[Row]:
    from modelopt.torch.utils.plugins.transformers_dataset import LanguageDataCollator

    folder = output / "messages"
    template = (folder / "chat_template_generation.jinja").read_text("utf-8")
    collate = LanguageDataCollator(
        _load(tokenizer),
        train_len=2000,
        chat_template=template,
        answer_only_loss=True,
        shift_labels=False,
        return_labels=True,
    )
    for line in _lines(folder):
        batch = collate([json.loads(line)])
        kept = batch["attention_mask"][0].bool()
        labels = batch["labels"][0][kept]
        yield batch["input_ids"][0][kept].tolist(), (labels >= 0).int().tolist()


def maps(output: Path, _tokenizer: Path) -> Iterator[Row]:
    """Frequencies, then `d2t` and `t2d` of each trainer, as pairs of lists."""
    import torch
    from speculators.train.cli import _load_mappings

    folder = output / "vocabulary"
    (d2t,) = folder.glob("d2t-*.npy")
    (t2d,) = folder.glob("t2d-*.npy")
    (both,) = folder.glob("vocab_mapping-*.pt")
    frequencies = torch.load(folder / "token_freq.pt", weights_only=True)
    yield list(frequencies), list(frequencies.values())
    ours = torch.load(both)
    theirs = _load_mappings(str(d2t), str(t2d), len(ours["d2t"]))
    for pair in (theirs[:2], (ours["d2t"], ours["t2d"])):
        yield pair[0].tolist(), pair[1].int().tolist()


def _lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.jsonl")):
        yield from path.read_text("utf-8").splitlines()


def _load(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(folder)


READERS: dict[str, Callable[[Path, Path], Iterator[Row]]] = {
    reader.__name__: reader
    for reader in (specforge, specforge_text, speculators, speculators_arrow, nemo, modelopt, maps)
}

if __name__ == "__main__":
    name, output, tokenizer, result = sys.argv[1:]
    rows = list(READERS[name](Path(output), Path(tokenizer)))
    Path(result).write_text(json.dumps(rows), "utf-8")
