"""What was learned of each provider, in a file that people can read: `habits.json`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from transforms.chat.residuals import Residuals, Stratum, estimate_hidden_drift
from transforms.failures import ConfigError
from transforms.records import Completion

VERSION = 1
UNKNOWN_PROVIDER = "unknown"


@dataclass(frozen=True, slots=True)
class Habits:
    """Residuals of every (provider, model) that answered; hashable and deterministic."""

    strata: tuple[tuple[Stratum, Residuals], ...] = ()

    def hidden_drift(self, stratum: Stratum) -> float:
        """Upper estimate for this stratum; 1.0 where nothing was learned."""
        return estimate_hidden_drift(dict(self.strata).get(stratum, Residuals()))


def stratum_of(completion: Completion) -> Stratum:
    """The stratum an answer belongs to."""
    return Stratum(completion.provider or UNKNOWN_PROVIDER, completion.model or "")


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    model: str
    answers: int
    fitting: int
    hidden_drift: float
    residuals: dict[str, Annotated[int, msgspec.Meta(ge=1)]]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    strata: list[_Row]


def write_habits(habits: Habits, path: Path) -> None:
    """Writes `habits.json`: for each stratum its answers and the histogram of residuals."""
    rows = [
        _Row(
            provider=stratum.provider,
            model=stratum.model,
            answers=residuals.answers,
            fitting=residuals.fitting,
            hidden_drift=round(estimate_hidden_drift(residuals), 6),
            residuals={str(residual): count for residual, count in residuals.counts},
        )
        for stratum, residuals in sorted(habits.strata, key=lambda item: item[0])
    ]
    encoded = msgspec.json.encode(_File(version=VERSION, strata=rows))
    path.write_bytes(msgspec.json.format(encoded, indent=2) + b"\n")


def read_habits(path: Path) -> Habits:
    """Reads what `write_habits` wrote.

    Raises:
        ConfigError: No such file, not of this form, or of another version.
    """
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        strata = tuple(
            (
                Stratum(row.provider, row.model),
                Residuals(tuple(sorted((int(key), n) for key, n in row.residuals.items()))),
            )
            for row in file.strata
        )
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise ConfigError(f"--habits {path}: {error}") from error
    if file.version != VERSION:
        raise ConfigError(f"--habits {path}: version {file.version}, this program reads {VERSION}")
    return Habits(strata)
