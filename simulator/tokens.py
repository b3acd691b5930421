"""Kimi's tokenizer for the simulator: its own few lines, so that no mistake is shared."""

import functools
import json
import random
from collections.abc import Sequence
from typing import Any

import splintr
import tiktoken
from renderers import KimiK25RendererConfig, create_renderer

RANKS = 163584
SPECIAL = {
    "[BOS]": 163584,
    "[EOS]": 163585,
    "<|im_end|>": 163586,
    "<|im_user|>": 163587,
    "<|im_assistant|>": 163588,
    "<|im_system|>": 163594,
    "<|tool_calls_section_begin|>": 163595,
    "<|tool_calls_section_end|>": 163596,
    "<|tool_call_begin|>": 163597,
    "<|tool_call_argument_begin|>": 163598,
    "<|tool_call_end|>": 163599,
    "<|im_middle|>": 163601,
    "<|media_begin|>": 163602,
    "<|media_content|>": 163603,
    "<|media_end|>": 163604,
    "<|media_pad|>": 163605,
    "<think>": 163606,
    "</think>": 163607,
    "[UNK]": 163838,
    "[PAD]": 163839,
}
_KEEPS_COUNT = 0.3
"""Share of drift that keeps the count, as measured on two small real models."""
_LETTERS = r"\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}{_LETTERS}]*[\p{{Ll}}{_LETTERS}]+{_ENDING}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}{_LETTERS}]+[\p{{Ll}}{_LETTERS}]*{_ENDING}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


@functools.cache
def load_kimi() -> "Kimi":
    """The only one of the process: its ranks take a while."""
    return Kimi()


class Kimi:
    """Encodes, decodes and renders prompts as Kimi-K2.5's server does."""

    name_or_path = ""
    unk_token_id = SPECIAL["[UNK]"]
    eos_token_id = SPECIAL["<|im_end|>"]

    def __init__(self) -> None:
        carrier = splintr.Tokenizer.from_pretrained("kimi_k2.5")
        ranks = {carrier.decode_token_bytes(rank): rank for rank in range(RANKS)}
        self._ranks = ranks
        self._encoding = tiktoken.Encoding(
            "kimi", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=SPECIAL
        )
        self._renderers = {
            thinks: create_renderer(self, KimiK25RendererConfig(thinking=thinks))
            for thinks in (True, False)
        }
        self._counts: dict[str, int] = {}

    def encode(self, text: str, **_: Any) -> list[int]:
        """Ids of a prompt's text; the thinking markers that the renderer writes become ids."""
        return self._encoding.encode(
            text, allowed_special={"<think>", "</think>"}, disallowed_special=()
        )

    def encode_plain(self, text: str) -> list[int]:
        return self._encoding.encode_ordinary(text)

    def drift(self, ids: list[int], rng: random.Random, rate: float) -> list[int]:
        """The same bytes as a model may sample them: a share of the tokens cut otherwise.

        A token becomes two, or two neighbours are cut at another place: the count is the same then.
        """
        drifted: list[int] = []
        for number in ids:
            drifted.append(number)
            if rng.random() < rate:
                keeps = len(drifted) > 1 and rng.random() < _KEEPS_COUNT
                whole = 2 if keeps else 1
                drifted[-whole:] = self._recut(drifted[-whole:], rng) or drifted[-whole:]
        return drifted

    def _recut(self, ids: list[int], rng: random.Random) -> list[int] | None:
        """Two other tokens of the same bytes."""
        text = b"".join(self.decode_bytes(ids))
        cuts = [(text[:place], text[place:]) for place in range(1, len(text))]
        found = [
            [self._ranks[a], self._ranks[b]]
            for a, b in cuts
            if a in self._ranks and b in self._ranks
        ]
        others = [cut for cut in found if cut != ids]
        return rng.choice(others) if others else None

    def has(self, token: bytes) -> bool:
        """Whether these bytes are a token."""
        return token in self._ranks

    def count(self, text: str) -> int:
        """Tokens of a text that comes again and again."""
        if text not in self._counts:
            self._counts[text] = len(self.encode_plain(text))
        return self._counts[text]

    def decode_bytes(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each token, which may end within a character."""
        return self._encoding.decode_tokens_bytes(ids)

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return self._encoding.decode(ids)

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        if isinstance(tokens, str):
            return SPECIAL.get(tokens, self.unk_token_id)
        return [SPECIAL.get(token, self.unk_token_id) for token in tokens]

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, thinks: bool = True
    ) -> list[int]:
        """Ids of the prompt."""
        chat = [
            {
                ("reasoning_content" if key == "reasoning" else key): value
                for key, value in m.items()
            }
            for m in json.loads(json.dumps(messages))
        ]
        renderer = self._renderers[thinks]
        return list(renderer.render_ids(chat, tools=tools or None, add_generation_prompt=True))
