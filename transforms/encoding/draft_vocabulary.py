"""The drafter's vocabulary: which of the model's ids it has, as files that trainers load."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transforms.encoding.torch_file import write_numbers, write_tensors


def choose_ids(
    counts: npt.NDArray[np.int64], size: int, special: Iterable[int]
) -> npt.NDArray[np.int64]:
    """`size` ids, ascending: all special ones, then the most frequent, the lower id at a tie.

    Raises:
        ValueError: The special ids alone are more, or the model has fewer.
    """
    forced = np.asarray(sorted(set(special)), dtype=np.int64)
    if not len(forced) <= size <= len(counts):
        raise ValueError(f"{size} is not from {len(forced)} to {len(counts)}")
    ranked = np.lexsort((np.arange(len(counts)), -counts))
    others = ranked[~np.isin(ranked, forced)]
    return np.sort(np.concatenate([forced, others[: size - len(forced)]]))


def write_frequencies(folder: Path, counts: npt.NDArray[np.int64]) -> None:
    """`token_freq.pt`, as speculators reads it: a dict of the ids that were sampled."""
    (seen,) = np.nonzero(counts)
    pairs = zip(seen.tolist(), counts[seen].tolist(), strict=True)
    write_numbers(folder / "token_freq.pt", dict(pairs))


def write_maps(folder: Path, chosen: npt.NDArray[np.int64], vocabulary: int) -> None:
    """`d2t` (int64[N]: id of the model less id of the drafter) and `t2d` (bool[V]: is it there).

    `d2t-N.npy` and `t2d-N.npy` are speculators', `vocab_mapping-N.pt` is SpecForge's.
    """
    size = len(chosen)
    d2t = chosen - np.arange(size, dtype=np.int64)
    t2d = np.zeros(vocabulary, dtype=np.bool_)
    t2d[chosen] = True
    np.save(folder / f"d2t-{size}.npy", d2t)
    np.save(folder / f"t2d-{size}.npy", t2d)
    write_tensors(folder / f"vocab_mapping-{size}.pt", {"d2t": d2t, "t2d": t2d})
