"""What was learned of each provider, in a file to be read and given back: `habits.json`."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from transforms.chat.habits import Habit, Stratum
from transforms.chat.learning import UNKNOWN, Learned
from transforms.chat.residuals import Residuals, estimate_hidden_drift
from transforms.failures import ConfigError

VERSION = 2
_USE_FROM = 0.8
"""Share of fitting answers below which a host is better avoided (fidelity.md, step 5)."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What is known of every (provider, model); hashable and deterministic."""

    strata: tuple[tuple[Stratum, Learned], ...] = ()

    def of(self, stratum: Stratum) -> Learned:
        """What is known of a stratum; `UNKNOWN` if nothing is."""
        return dict(self.strata).get(stratum, UNKNOWN)

    def summary(self, provider: str) -> dict[str, Any]:
        """What a person wants to know of a provider; the worst of its models."""
        known = [learned for stratum, learned in self.strata if stratum.provider == provider]
        kinds = [
            kind for learned in known for kind in (learned.text, learned.calls) if kind.answers
        ]
        residuals = sum((Counter(dict(kind.counts)) for kind in kinds), Counter[int]())
        return {
            "answers": residuals.total(),
            "residuals": {str(residual): n for residual, n in sorted(residuals.items())},
            "hidden_drift": max(map(estimate_hidden_drift, kinds), default=None),
            "habit": "; ".join(describe(learned) for learned in known) or "unknown",
            "explained": min((k.fitting / k.answers for k in kinds), default=None),
            "verdict": "use" if known and all(map(is_usable, known)) else "avoid",
        }


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Answers without calls, or with."""

    known: bool
    answers: int
    explained: float
    hidden_drift: float
    residuals: dict[str, int]


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    model: str
    verdict: str
    habit: Habit
    text: _Kind
    calls: _Kind


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    strata: list[_Row]


def write_habits(habits: Habits, path: Path) -> None:
    """Writes `habits.json`: of each stratum its habit, and the residuals that speak for it."""
    rows = [
        _Row(
            provider=stratum.provider,
            model=stratum.model,
            verdict="use" if is_usable(learned) else "avoid",
            habit=learned.habit,
            text=_kind(learned.text, known=learned.knows_text),
            calls=_kind(learned.calls, known=learned.knows_calls),
        )
        for stratum, learned in sorted(habits.strata, key=lambda item: item[0])
    ]
    encoded = msgspec.json.encode(_File(version=VERSION, strata=rows))
    path.write_bytes(msgspec.json.format(encoded, indent=2) + b"\n")


def _kind(residuals: Residuals, *, known: bool) -> _Kind:
    return _Kind(
        known=known,
        answers=residuals.answers,
        explained=round(residuals.fitting / max(residuals.answers, 1), 4),
        hidden_drift=round(estimate_hidden_drift(residuals), 6),
        residuals={str(residual): count for residual, count in residuals.counts},
    )


def describe(learned: Learned) -> str:
    """A habit in words: what differs from a host that changes nothing."""
    plain = msgspec.to_builtins(Habit())
    told = msgspec.to_builtins(learned.habit)
    words = [f"{name} {value}" for name, value in told.items() if value != plain[name]]
    if not (learned.knows_text or learned.knows_calls):
        return "unknown"
    return ", ".join(words) or "verbatim"


def is_usable(learned: Learned) -> bool:
    """Whether a host's answers are worth their money: known, and most of them fit."""
    kinds = ((learned.knows_text, learned.text), (learned.knows_calls, learned.calls))
    answered = [(known, residuals) for known, residuals in kinds if residuals.answers]
    return bool(answered) and all(
        known and residuals.fitting >= _USE_FROM * residuals.answers
        for known, residuals in answered
    )


def read_habits(path: Path) -> Habits:
    """Reads what `write_habits` wrote.

    Raises:
        ConfigError: No such file, not of this form, or of another version.
    """
    try:
        text = path.read_bytes()
        version = msgspec.json.decode(text, type=dict[str, Any]).get("version")
        if version != VERSION:
            raise ConfigError(f"--habits {path}: version {version}, this program reads {VERSION}")
        file = msgspec.json.decode(text, type=_File)
        strata = tuple((Stratum(row.provider, row.model), _learned(row)) for row in file.strata)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"--habits {path}: {error}") from error
    return Habits(strata)


def _learned(row: _Row) -> Learned:
    return Learned(
        habit=row.habit,
        text=_residuals(row.text.residuals),
        calls=_residuals(row.calls.residuals),
        knows_text=row.text.known,
        knows_calls=row.calls.known,
    )


def _residuals(counts: Mapping[str, int]) -> Residuals:
    read = sorted((int(residual), count) for residual, count in counts.items())
    if any(count < 1 for _, count in read):
        raise ValueError(f"a count below 1 in {dict(counts)}")
    return Residuals(tuple(read))
