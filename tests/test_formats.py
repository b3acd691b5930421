"""One output in every format, by other people's readers; what differs is not published."""

import dataclasses
import json
import pickle
import re
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import tiktoken
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import given
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe

from pipeline.finish import name_parts
from pipeline.tally import BrokenTallyError, count_output
from tests import build
from tests.programs import Server, example_prompts, run_pipeline, samples, summary, write_prompts
from transforms.as_text import as_text
from transforms.chat.carriers import find_files
from transforms.chat.profile import ModelProfile, all_special_ids, all_special_tokens
from transforms.chat.tokens import load_tokenizer
from transforms.encoding.draft_vocabulary import choose_ids, write_maps
from transforms.encoding.formats import FORMATS
from transforms.encoding.loss_mask import Masking
from transforms.encoding.torch_file import write_numbers
from transforms.records import Verdict
from transforms.write import WriteSamples, thought_ids

ALL = ",".join(FORMATS)


def lines(output: Path, name: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in FORMATS[name].parts(output)
        for line in path.read_text("utf-8").splitlines()
    ]


def torchspec_text(conversation: list[dict[str, str]]) -> str:
    """What TorchSpec's KimiK25Parser (9d072fc) makes of text without tools and images."""
    text = ""
    for place, message in enumerate(conversation):
        role, content = message["role"], message["content"]
        if role == "assistant" and place + 1 < len(conversation):
            content = re.sub(r"<think>[\s\S]*?</think>", "", content)
        if role == "assistant" and not content.startswith("<think>"):
            content = "<think></think>" + content
        kind = {"user": "<|im_user|>", "assistant": "<|im_assistant|>"}.get(role, "<|im_system|>")
        text += f"{kind}{role}<|im_middle|>{content}<|im_end|>"
    return text


def test_every_format_holds_the_same_ids(
    tmp_path: Path, simulator: Server, kimi: ModelProfile
) -> None:
    rows = example_prompts(120)
    write_prompts(tmp_path, rows)
    more = ("--formats", ALL, "--draft_vocab_size", "4096", "--loss_mask", "torchspec")
    done = run_pipeline(tmp_path, simulator.base_url, *more)
    assert done.returncode == 0, done.stderr
    output = tmp_path / "out"
    good = samples(output)
    ids = {identity: row["input_ids"] for identity, row in good.items()}
    masking = Masking("torchspec", thought_ids(kimi))
    masks = {
        identity: masking(np.array(row["input_ids"]), row["prompt_length"]).tolist()
        for identity, row in good.items()
    }

    written = {row["id"]: row for row in lines(output, "jsonl")}
    assert {identity: row.pop("loss_mask") for identity, row in written.items()} == masks
    assert written == good

    (part,) = FORMATS["arrow"].parts(output)
    arrow = pa.ipc.open_stream(pa.memory_map(str(part))).read_all().to_pylist()
    assert {row["id"]: row["input_ids"] for row in arrow} == ids
    assert {row["id"]: row["loss_mask"] for row in arrow} == masks
    assert all(row["seq_len"] == len(row["input_ids"]) for row in arrow)
    state = json.loads((output / "arrow" / "state.json").read_text("utf-8"))
    assert state["_data_files"] == [{"filename": "part-00000-of-00001.arrow"}]

    spec = kimi.tokenizer
    encoding = tiktoken.Encoding(
        "kimi",
        pat_str="|".join(spec.pattern),
        mergeable_ranks=load_tiktoken_bpe(str(find_files(spec) / spec.file)),
        special_tokens=dict(all_special_tokens(kimi)),
    )
    texts = {row["id"]: row["text"] for row in lines(output, "specforge_text")}
    joined = {
        row["id"]: "".join(message["content"] for message in row["messages"])
        for row in lines(output, "messages")
    }
    assert joined == texts
    parsed = {i: encoding.encode(text, allowed_special="all") for i, text in texts.items()}
    assert parsed == ids
    spec_rows = lines(output, "torchspec")
    assert {row["id"]: torchspec_text(row["conversations"]) for row in spec_rows} == {
        row["id"]: texts[row["id"]] for row in rows if "tools" not in row
    }
    assert len(spec_rows) > 40
    left = (output / "left_out").glob("part-*.jsonl")
    told = [json.loads(line) for path in left for line in path.read_text("utf-8").splitlines()]
    assert {row["id"] for row in told} == {row["id"] for row in rows if "tools" in row}
    assert {row["format"] for row in told} == {"torchspec"}
    counts = dict.fromkeys(FORMATS, 120) | {"torchspec": len(spec_rows)}
    assert summary(output)["formats"] == counts
    card = (output / "README.md").read_text("utf-8")
    assert all(f"| {name} | `" in card for name in FORMATS)
    manifest = json.loads((output / "manifest.json").read_text("utf-8"))
    assert set(manifest["digests"]) == {
        "profile", "tokenizer", "template", "answer", "habits", "code",
    }  # fmt: skip
    habits = tmp_path / "habits.json"
    habits.write_bytes((output / "habits.json").read_bytes())
    other = run_pipeline(tmp_path, simulator.base_url, *more, "--habits", str(habits))
    assert other.returncode == 2
    assert "habits_sha256" in other.stderr


@pytest.fixture(scope="module")
def verdicts(kimi: ModelProfile) -> list[Verdict]:
    """Forty of some 200 ids each, the last with characters at which some readers end a line."""
    words = [f"word {n}" for n in range(60)]
    made = []
    for number in range(40):
        text = " ".join([*words, str(number), "a\u2028b\x85c\u2029d\x1ce" if number == 39 else "."])
        answer = build.completion(text, "Hm.", provider="P")
        length = len(load_tokenizer(kimi).encode(text)) + 4
        answer = dataclasses.replace(answer, usage=build.usage(length))
        asked = build.prompt(id=f"p{number}")
        made.append(build.judge(build.exchange(answer, asked), kimi, build.habits(answer)))
    assert all(verdict.is_good for verdict in made)
    return made


@pytest.fixture
def written(tmp_path: Path, verdicts: list[Verdict], kimi: ModelProfile) -> Path:
    """The rows in every format, a part closed at 2 KB."""
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        made = pipeline | beam.Create([None]) | beam.FlatMap(lambda _: verdicts)
        typed = made | beam.Map(lambda verdict: verdict).with_output_types(Verdict)
        _ = typed | WriteSamples(str(tmp_path), tuple(FORMATS), kimi, part_bytes=2000)
    (tmp_path / "rejections").mkdir()
    name_parts(tmp_path, tuple(FORMATS))
    return tmp_path


def test_a_part_is_closed_at_its_size(written: Path, verdicts: list[Verdict]) -> None:
    identities = [verdict.sample.prompt.id for verdict in verdicts]
    for name in ("jsonl", "specforge_text", "torchspec", "messages"):
        parts = FORMATS[name].parts(written)
        total = len(parts)
        assert total > 4
        suffix = FORMATS[name].suffix
        assert [path.name for path in parts] == [
            f"part-{number:05}-of-{total:05}.{suffix}" for number in range(total)
        ]
        assert min(path.stat().st_size for path in parts[:-1]) >= 2000
        assert [row["id"] for row in lines(written, name)] == identities
    assert len(FORMATS["tfrecord"].parts(written)) > 4
    assert count_output(written, tuple(FORMATS), {}).rows == dict.fromkeys(FORMATS, 40)


@pytest.mark.parametrize("name", FORMATS)
def test_a_part_that_is_missing_or_cut_is_found(written: Path, name: str) -> None:
    last = FORMATS[name].parts(written)[-1]
    whole = last.read_bytes()
    last.write_bytes(whole[: len(whole) // 2 - 1])
    with pytest.raises((BrokenTallyError, ValueError)):  # the columns are read before the count
        count_output(written, tuple(FORMATS), {})
    last.unlink()
    with pytest.raises(BrokenTallyError, match=r"\d rows in"):
        count_output(written, tuple(FORMATS), {})


def test_text_that_gives_other_ids_is_left_out(verdicts: list[Verdict], kimi: ModelProfile) -> None:
    sample = verdicts[0].sample
    row = as_text(sample, kimi)
    assert row is not None
    assert row.answer == sample.text
    encode = load_tokenizer(kimi).encode
    ids = (*sample.input_ids[:-1], *encode("<think>"), sample.input_ids[-1])
    text = sample.text.replace("<|im_end|>", "<think><|im_end|>")
    written_out = dataclasses.replace(sample, input_ids=ids, text=text)
    assert as_text(written_out, kimi) is None


@pytest.mark.parametrize(
    ("dialect", "mask"),
    [
        ("exact", [0, 0, 0, 1, 1, 1, 1]),
        ("speculators", [0, 0, 0, 1, 1, 1, 1]),
        ("nemo", [0, 0, 0, 1, 1, 1, 1]),
        ("specforge", [0, 0, 1, 1, 1, 1, 1]),
        ("torchspec", [0, 0, 1, 1, 1, 1, 0]),
        ("modelopt", [0, 0, 1, 1, 1, 1, 0]),
    ],
)
def test_masks_are_those_of_the_dialects(dialect: str, mask: list[int], kimi: ModelProfile) -> None:
    names = ["<|im_assistant|>", "<|im_middle|>", "<think>", "</think>"]
    marks = [kimi.special_tokens[name] for name in names]
    ids = np.array([*marks[:3], 17, marks[3], 19, kimi.special_tokens["<|im_end|>"]])
    assert Masking(dialect, thought_ids(kimi))(ids, 3).tolist() == mask


@given(
    st.lists(st.integers(0, 5), min_size=30, max_size=30),
    st.sets(st.integers(0, 29), max_size=5),
    st.integers(5, 30),
)
def test_a_draft_vocabulary_is_the_special_ids_and_the_most_frequent(
    counts: list[int], special: set[int], size: int
) -> None:
    chosen = choose_ids(np.array(counts), size, special).tolist()
    assert chosen == sorted(set(chosen))
    assert len(chosen) == size
    assert special <= set(chosen)
    free = set(chosen) - special
    out = set(range(30)) - set(chosen)
    assert all((counts[a], -a) > (counts[b], -b) for a in free for b in out)


def test_a_draft_vocabulary_has_room_for_the_special_ids(kimi: ModelProfile) -> None:
    with pytest.raises(ValueError, match="from 256"):
        choose_ids(np.zeros(163840, dtype=np.int64), 255, all_special_ids(kimi))


class Unpickler(pickle.Unpickler):
    """What `torch.load` makes of a file, in numpy."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        super().__init__(file.open("archive/data.pkl"))
        self._file = file

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("torch._utils", "_rebuild_tensor_v2"): lambda data, _offset, shape, stride, *_: (
                np.lib.stride_tricks.as_strided(data, shape, [n * data.itemsize for n in stride])
            ),
            ("torch", "LongStorage"): np.int64,
            ("torch", "BoolStorage"): np.bool_,
            ("collections", "OrderedDict"): OrderedDict,
        }
        return known[module, name]

    def persistent_load(self, pid: Any) -> Any:
        kind, storage, key, place, length = pid
        assert (kind, place) == ("storage", "cpu")
        data = np.frombuffer(self._file.read(f"archive/data/{key}"), storage)
        assert len(data) == length
        return data


def test_maps_are_files_that_torch_and_numpy_load(tmp_path: Path) -> None:
    write_maps(tmp_path, np.array([0, 2, 5]), 7)
    d2t, t2d = [0, 1, 3], [True, False, True, False, False, True, False]
    assert np.load(tmp_path / "d2t-3.npy").tolist() == d2t
    assert np.load(tmp_path / "t2d-3.npy").tolist() == t2d
    with zipfile.ZipFile(tmp_path / "vocab_mapping-3.pt") as file:
        both = Unpickler(file).load()
    assert {name: tensor.tolist() for name, tensor in both.items()} == {"d2t": d2t, "t2d": t2d}
    write_numbers(tmp_path / "token_freq.pt", {7: 2**40, 0: 1})
    with zipfile.ZipFile(tmp_path / "token_freq.pt") as file:
        assert Unpickler(file).load() == {7: 2**40, 0: 1}
