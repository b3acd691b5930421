"""Whether a host trims blanks at the start of texts: what its answers, and its peers', prove."""

from collections.abc import Iterable

from transforms.chat.habits import Habit
from transforms.chat.statistic import Statistic

STARTS = ("thought", "content")
_PROVED = 0.95
"""Share of the texts that would show a trimmed blank which must show none."""


def still_unsure(
    statistic: Statistic, habit: Habit, peers: list[tuple[Statistic, Habit]]
) -> tuple[str, ...]:
    """The starts that neither the host nor all hosts of its model together prove."""
    plain = {
        name
        for name in STARTS
        if not any(peer.values("white", name) for peer, _ in peers)
        and _is_proved(*_add(_witnesses(peer, name, told) for peer, told in peers))
    }
    refuted = {name for name in STARTS if _tells(statistic, name, habit) is False}
    return tuple(n for n in habit.unsure_starts if n not in plain or n in refuted)


def _add(witnesses: Iterable[tuple[int, int]]) -> tuple[int, int]:
    fits, trimmed = zip(*witnesses, strict=True)
    return sum(fits), sum(trimmed)


def proved_starts(statistic: Statistic, habit: Habit) -> set[str]:
    """Texts at whose start nothing is trimmed.

    White space that is shown proves it; so does a text that would cost a token more with a blank
    before it, and is counted as it is. Where no host of a model shows a blank, one host's proof
    that none was sampled serves all (`still_unsure`).
    """
    return {
        name for name in STARTS if statistic.values("white", name) or _tells(statistic, name, habit)
    }


_WITNESSES = 5
"""Texts without a blank that it takes: a model that begins half of its texts with one begins so
many without in 3 of 100 cases."""


def _tells(statistic: Statistic, name: str, habit: Habit) -> bool | None:
    """Whether texts that would show a trimmed blank in their count show none; `None`: too few."""
    fits, trimmed = _witnesses(statistic, name, habit)
    return None if fits < _WITNESSES and not trimmed else _is_proved(fits, trimmed)


def _is_proved(fits: int, trimmed: int) -> bool:
    return fits >= _WITNESSES and fits >= _PROVED * (fits + trimmed)


def _witnesses(statistic: Statistic, name: str, habit: Habit) -> tuple[int, int]:
    """Texts that would show a trimmed blank: how many show none, and how many show one.

    " Oi!" is a token longer than "Oi!", and " Toyota" one shorter than "Toyota", which no drift is.
    """
    fits = trimmed = 0
    for kind, offset in (("text", habit.text_offset), ("calls", habit.calls_offset)):
        for way, sign in (("longer", 1), ("shorter", -1)):
            values = statistic.values("tells", name, kind, way)
            fits += values.get(offset, 0)
            trimmed += sum(n for value, n in values.items() if (value - offset) * sign > 0)
    return fits, trimmed
