"""`check` finds what is wrong with a profile, and names it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.check import WRONG_PROFILE, run
from tests.build import prompt
from tests.programs import ROOT
from transforms.chat.carriers import find_files
from transforms.chat.profile import ModelProfile, load_profile
from transforms.chat.render import render_prompt
from transforms.chat.tokens import Tokenizer
from transforms.failures import ConfigError
from transforms.records import Message, Role, ToolCall

MODELS_FOLDER = ROOT / "templates" / "models"
MODELS = sorted(folder.name for folder in MODELS_FOLDER.iterdir())
KNOWN = [name for name in MODELS if load_profile(name).tokenizer.kind != "unknown"]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, str]]]:
    """Runs `check`: its exit code, and its lines by the check's name."""

    def run_check(*flags: object) -> tuple[int, dict[str, str]]:
        code = run([str(flag) for flag in flags])
        rows = (line for line in capsys.readouterr().out.splitlines())
        return code, {row[13:28].strip(): f"{row[:12].strip()}: {row[29:]}" for row in rows}

    return run_check


Check = Callable[..., tuple[int, dict[str, str]]]
Change = Callable[..., Path]


@pytest.fixture
def changed(tmp_path: Path) -> Change:
    """A shipped profile with one text in it replaced."""

    def change(name: str, *changes: tuple[str, str]) -> Path:
        text = (MODELS_FOLDER / name / "profile.toml").read_text("utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / f"{name}.toml"
        path.write_text(text, "utf-8")
        return path

    return change


@pytest.mark.parametrize("name", sorted({*MODELS} - {*KNOWN}))
def test_a_profile_without_a_tokenizer_says_so(name: str) -> None:
    with pytest.raises(ConfigError, match="no package ships this model's tokenizer"):
        run(["--profile", name])


@pytest.mark.parametrize("name", KNOWN)
def test_every_profile_passes(check: Check, name: str) -> None:
    code, lines = check("--profile", name)
    assert code == 0
    assert [line for line in lines.values() if line.startswith("FAILED")] == []
    assert lines["template"].startswith("ok" if name == "smollm2-135m-instruct" else "not checked")


def test_a_broken_vector_of_the_profile(check: Check, changed: Change) -> None:
    code, lines = check("--profile", changed("kimi-k2.5", ("4536, 13980, 13]", "4536, 13981, 13]")))
    assert code == WRONG_PROFILE
    assert lines["vectors"].startswith(
        "FAILED: \"I've got it, don't worry.\", id 5: wanted [13981, 13]"
    )
    assert "found [13980, 13]" in lines["vectors"]


def test_special_ids_that_changed_places(check: Check, changed: Change, tmp_path: Path) -> None:
    ends = (
        ('"<think>" = 163606', '"<think>" = 163607'),
        ('"</think>" = 163607', '"</think>" = 163606'),
    )
    vectors = tmp_path / "vectors.json"
    row = {
        "name": "n",
        "text": "Hi.</think>Hello!<|im_end|>",
        "ids": [18699, 13, 163607, 19180, 0, 163586],
    }
    vectors.write_text(json.dumps({"about": "an answer", "vectors": [row]}))
    assert check("--vectors", vectors)[0] == 0
    code, lines = check("--profile", changed("kimi-k2.5", *ends), "--vectors", vectors)
    assert code == WRONG_PROFILE
    assert "id 2: wanted [163607, 19180, 0, 163586]" in lines["vectors"]
    assert "found [163606, 19180, 0, 163586]" in lines["vectors"]


def test_special_ids_are_those_beside_the_tokenizer(
    check: Check, kimi: ModelProfile, tmp_path: Path
) -> None:
    (tmp_path / "tiktoken.model").symlink_to(find_files(kimi.tokenizer) / "tiktoken.model")
    told = {str(number): {"content": text} for text, number in kimi.special_tokens.items()}
    told["163604"], told["163605"] = told["163605"], told["163604"]
    config = {"added_tokens_decoder": told}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    code, lines = check("--tokenizer", tmp_path)
    assert code == WRONG_PROFILE
    assert lines["special tokens"] == (
        "FAILED: '<|media_end|>': id 163605 in tokenizer_config.json, 163604 in the profile"
    )


def test_a_special_id_that_the_library_does_not_have(check: Check, changed: Change) -> None:
    swap = ('"<repo_name>" = 3', '"<repo_name>" = 4'), ('"<reponame>" = 4', '"<reponame>" = 3')
    code, lines = check("--profile", changed("smollm2-135m-instruct", *swap))
    assert code == WRONG_PROFILE
    assert lines["special tokens"] == "FAILED: '<repo_name>': the tokenizer's id 3, the profile's 4"


def test_a_template_that_differs(check: Check, smollm2: ModelProfile, tmp_path: Path) -> None:
    config = json.loads((find_files(smollm2.tokenizer) / "tokenizer_config.json").read_bytes())
    template = tmp_path / "other.jinja"
    template.write_text(config["chat_template"].replace("trained by", "made by"), "utf-8")
    code, lines = check("--profile", smollm2.name, "--template", template)
    assert code == WRONG_PROFILE
    assert lines["template"].startswith("FAILED: prompt 'one turn', id ")
    assert "' made by Hugging" in lines["template"]
    assert "' trained by Hugging" in lines["template"]


def test_a_template_that_refuses(check: Check, tmp_path: Path) -> None:
    template = tmp_path / "refuses.jinja"
    template.write_text("{{ raise_exception('no such role') }}")
    assert "no such role" in check("--template", template)[1]["template"]
    template.write_text("{% if %}")
    assert check("--template", template)[1]["template"].startswith("FAILED: profile kimi-k2.5")


def test_a_template_that_does_not_open_the_thought_is_told(check: Check, tmp_path: Path) -> None:
    source = load_profile("kimi-k2-thinking").prompt.template
    assert source is not None
    template = tmp_path / "upstream.jinja"
    (tmp_path / "opens.jinja").write_text(source, "utf-8")
    template.write_text(source.replace("<|im_middle|><think>", "<|im_middle|>"), "utf-8")
    code, lines = check("--profile", "kimi-k2-thinking", "--template", template)
    assert (code, lines["template"].startswith("ok: 7 prompts")) == (0, True)
    assert "does not open the thought" in lines["template"]
    code, lines = check(
        "--profile", "kimi-k2-thinking", "--template", template.with_name("opens.jinja")
    )
    assert code == WRONG_PROFILE
    assert "found []" in lines["template"]


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        (('form = "functions.', 'form = "tools.'), "answer", "REPAIR_ID_VERBATIM"),
        (('ends_with = ["<think>"]', 'ends_with = ["</think>"]'), "prompt ends", "wanted [163607]"),
        (('name = "kimi-k2.5", thinking', 'name = "kimi", thinking'), "answer", "renderer"),
    ],
)
def test_a_wrong_grammar(
    check: Check, changed: Change, change: tuple[str, str], name: str, said: str
) -> None:
    code, lines = check("--profile", changed("kimi-k2.5", change))
    assert (code, lines[name].startswith("FAILED")) == (WRONG_PROFILE, True)
    assert said in lines[name]
    assert len(lines) == 6


def test_a_wrong_vocabulary(check: Check, changed: Change) -> None:
    path = changed("smollm2-135m-instruct", ("vocabulary = 49152", "vocabulary = 49153"))
    said = "FAILED: the tokenizer has 49152 tokens, the profile says 49153"
    assert check("--profile", path)[1]["profile"] == said


@pytest.mark.parametrize(
    ("flag", "content"),
    [("--vectors", None), ("--vectors", "{}"), ("--vectors", '[{"text": "a"}]'),
     ("--vectors", '[{"text": "a", "ids": ["b"]}]'), ("--vectors", "[1]"), ("--template", None),
     ("--profile", None), ("--tokenizer", None)],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(tmp_path: Path, flag: str, content: str | None) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="file"):
        run([flag, str(path)])


def test_exit_codes(changed: Change) -> None:
    wrong = changed("smollm2-135m-instruct", ("7042, 30]", "7042, 31]"))
    for place, code in (("no-such-profile", 2), (str(wrong), WRONG_PROFILE)):
        command = [sys.executable, "-m", "pipeline.main", "check", "--profile", place]
        assert subprocess.run(command, cwd=ROOT, env=os.environ, check=False).returncode == code


@pytest.mark.parametrize("name", ["kimi-k2.5", "kimi-k2.6", "kimi-k2-thinking"])
def test_agrees_with_the_models_own_template(
    check: Check, shared: Callable[[str], Path], name: str
) -> None:
    template = shared(f"tokenizers/{name}/chat_template.jinja")
    code, lines = check("--profile", name, "--template", template)
    assert (code, lines["template"][:3]) == (0, "ok:")


@pytest.mark.parametrize(("name", "count"), [("golden", 94), ("response", 7)])
def test_agrees_with_the_published_vectors(
    check: Check, shared: Callable[[str], Path], name: str, count: int
) -> None:
    code, lines = check("--vectors", shared(f"tokenizers/kimi-k2.5/{name}_vectors.json"))
    assert (code, lines["vectors"]) == (0, f"ok: 4 of the profile, {count} given")


def test_finds_the_template_and_the_ids_beside_the_tokenizer(
    check: Check, kimi: ModelProfile, shared: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "tiktoken.model").symlink_to(find_files(kimi.tokenizer) / "tiktoken.model")
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).symlink_to(shared(f"tokenizers/kimi-k2.5/{name}"))
    code, lines = check("--tokenizer", tmp_path)
    assert (code, lines["template"]) == (0, f"ok: 14 prompts, id for id; {TYPESCRIPT}")
    assert lines["special tokens"].endswith("as in tokenizer_config.json")


TYPESCRIPT = "tools as TypeScript are by `renderers` in both"
CALL = ToolCall(id="functions.f:0", name="f", arguments="{}")
TURNS = (
    Message(role=Role.USER, content="Hi"),
    Message(role=Role.ASSISTANT, content="", reasoning="Call f.", tool_calls=(CALL,)),
    Message(role=Role.TOOL, content="\n\nfoo", tool_call_id=CALL.id),
)
"""A result that begins with line feeds, which its header ends in, after a thought."""


def test_a_result_shares_tokens_with_its_header(
    kimi: ModelProfile, kimi_tokenizer: Tokenizer
) -> None:
    ids = render_prompt(prompt(messages=TURNS), kimi)
    start = ids.index(163599) + 2  # past the ends of the call and of the section
    text = kimi_tokenizer.encode("## Return of functions.f:0\n\n\nfoo")
    wanted = [163586, 163594, *kimi_tokenizer.encode("tool"), 163601, *text, 163586]
    assert list(ids[start : start + len(wanted)]) == wanted


def test_thoughts_of_tool_turns_are_shown_while_thinking_alone(kimi: ModelProfile) -> None:
    on, off = (render_prompt(prompt(messages=TURNS), kimi, thinks=t) for t in (True, False))
    assert on.index(163607) - on.index(163606) > 1
    assert off.index(163607) - off.index(163606) == 1


def test_k2_thinking_writes_a_system_message_and_tools_as_json(kimi_tokenizer: Tokenizer) -> None:
    tool = '{"type":"function","function":{"name":"f","description":"天气","parameters":{}}}'
    asked = prompt("Hi", tools=(tool,))
    assert kimi_tokenizer.decode(render_prompt(asked, load_profile("kimi-k2-thinking"))) == (
        '<|im_system|>tool_declare<|im_middle|>[{"function": {"description": "天气", "name": "f", '
        '"parameters": {}}, "type": "function"}]<|im_end|><|im_system|>system<|im_middle|>You are '
        "Kimi, an AI assistant created by Moonshot AI.<|im_end|><|im_user|>user<|im_middle|>Hi"
        "<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    )
