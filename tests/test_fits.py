"""Good so far: counts that differ from the ids by what is usual at their host."""

from collections import Counter

from transforms.chat.fits import Fits
from transforms.chat.habits import Stratum
from transforms.chat.statistic import Key, Statistic

CHUTES, NOVITA = Stratum("Chutes", "m"), Stratum("Novita", "m")
TEXT: Key = ("text", "verbatim")
CALLS: Key = ("calls", "verbatim", "native", "verbatim")


def test_the_usual_residual_of_each_host_and_kind_is_good() -> None:
    fits = Fits()
    seen = [
        (CHUTES, TEXT, 0, 1), (CHUTES, TEXT, 0, 2), (CHUTES, TEXT, 3, 2), (CHUTES, TEXT, 0, 3),
        (NOVITA, TEXT, -1, 4), (NOVITA, TEXT, 0, 4), (NOVITA, TEXT, -1, 5),
        (NOVITA, CALLS, 2, 6),
    ]  # fmt: skip
    for stratum, key, residual, good in seen:
        other: Key = ("text", "around_markers")
        fits.add(stratum, Statistic.of(Counter({(key, residual): 1, (other, 7): 1})))
        assert fits.good == good
