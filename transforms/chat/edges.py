"""White space at the edges of thought and content: where the count can tell, and where not."""

import unicodedata

from transforms.chat.tokens import Tokenizer

_NEAR = 96
"""Characters from an edge that an inserted blank can change the cutting of; the rest is the same
with and without it."""
_WHITE = (" ", "\n", "\n\n")


def tells_start(text: str, tokenizer: Tokenizer) -> bool:
    """Whether a blank that was trimmed before this text would show in the count.

    "The" and " The" are one token each, "Oi!" is two and " Oi!" three.
    """
    return length_of_blank(text, tokenizer) > 0


def length_of_blank(text: str, tokenizer: Tokenizer) -> int:
    """Tokens more with a blank before it; of Kimi 1 for "Oi!", 0 for "The", -1 for "Toyota"."""
    near = text[:_NEAR]
    return len(tokenizer.encode(f" {near}")) - len(tokenizer.encode(near))


_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "FULLWIDTH")


def is_spaced(text: str) -> bool:
    """Whether a text begins in a script that puts blanks between words.

    That no blank was trimmed before Chinese says nothing of English.
    """
    return not unicodedata.name(text[0], "").startswith(_UNSPACED)


def tells_end(text: str, tokenizer: Tokenizer) -> bool:
    """Whether white space that was trimmed after this text would show in the count."""
    near = text[-_NEAR:]
    plain = len(tokenizer.encode(near))
    return all(len(tokenizer.encode(near + white)) > plain for white in _WHITE)


def cost_of_edges(text: str, prefix: str, suffix: str, tokenizer: Tokenizer) -> int | None:
    """Tokens fewer without prefix and suffix; `None`: the text does not have both."""
    if not (text.startswith(prefix) and text.endswith(suffix)):
        return None
    if len(text) < len(prefix) + len(suffix):
        return None
    if len(text) <= 2 * _NEAR:
        inner = text[len(prefix) : len(text) - len(suffix)]
        return len(tokenizer.encode(text)) - len(tokenizer.encode(inner))
    start, end = text[:_NEAR], text[-_NEAR:]
    saved = 0
    if prefix:
        saved += len(tokenizer.encode(start)) - len(tokenizer.encode(start[len(prefix) :]))
    if suffix:
        saved += len(tokenizer.encode(end)) - len(tokenizer.encode(end[: -len(suffix)]))
    return saved
