"""How many answers will be good as far as their counts tell, before their hosts are learned."""

from collections import Counter

from transforms.chat.habits import Arguments, Blanks, Ids, Stratum
from transforms.chat.statistic import Key, Statistic

_AS_THEY_CAME: frozenset[Key] = frozenset({
    ("text", Blanks.VERBATIM.value),
    ("calls", Blanks.VERBATIM.value, Ids.NATIVE.value, Arguments.VERBATIM.value),
})  # fmt: skip


class Fits:
    """Answers whose count differs from their ids by what is usual at their host.

    Attributes:
        good: How many so far. An estimate: a host with many other residuals stays unknown, and
            none of its answers is good.
    """

    def __init__(self) -> None:
        self.good = 0
        self._residuals: dict[tuple[Stratum, str], Counter[int]] = {}
        self._most: Counter[tuple[Stratum, str]] = Counter()

    def add(self, stratum: Stratum, statistic: Statistic) -> None:
        """One answer's."""
        for key, residual, _ in statistic.counts:
            if key in _AS_THEY_CAME:
                self._count((stratum, key[0]), residual)

    def _count(self, kind: tuple[Stratum, str], residual: int) -> None:
        residuals = self._residuals.setdefault(kind, Counter())
        residuals[residual] += 1
        if residuals[residual] > self._most[kind]:
            self._most[kind] += 1
            self.good += 1
