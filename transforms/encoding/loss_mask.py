"""Loss masks by trainer: each follows from the boundary and the ids; none is shifted."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Dialect:
    """What of a turn is 1 beside what was sampled before its end token."""

    prefill: bool = False
    end: bool = True


DIALECTS: Mapping[str, Dialect] = {
    "exact": Dialect(),
    "speculators": Dialect(),
    "nemo": Dialect(),
    "specforge": Dialect(prefill=True),
    "torchspec": Dialect(prefill=True, end=False),
    "modelopt": Dialect(prefill=True, end=False),
}
"""As the trainers make them of the last turn; `exact` is what was sampled."""


@dataclass(frozen=True, slots=True)
class Masking:
    """Makes a row's mask.

    Attributes:
        dialect: A name of `DIALECTS`.
        prefilled: Ids of thinking markers; those that end a prompt are its prefill.
    """

    dialect: str
    prefilled: frozenset[int]

    def __call__(self, ids: npt.NDArray[np.int32], prompt_length: int) -> npt.NDArray[np.int8]:
        """int8[T], 0 or 1; `prompt_length` ids come before what was sampled."""
        dialect = DIALECTS[self.dialect]
        start = prompt_length
        while dialect.prefill and start and int(ids[start - 1]) in self.prefilled:
            start -= 1
        mask = np.zeros(len(ids), dtype=np.int8)
        mask[start : len(ids) if dialect.end else -1] = 1
        return mask
