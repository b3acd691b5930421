"""What a run may cost, said before the first paid request."""

from dataclasses import dataclass
from decimal import Decimal

from transforms.openrouter.catalogue import Host

BYTES_PER_TOKEN = 4
"""Of a request's JSON; texts of most languages are near it."""
_LONG_PROMPT = 2000
"""Tokens: long for a question, short for a document."""
_USUAL_ANSWER = 1000
"""Tokens: mean of the reference run's answers, about 40,000 for $86."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars a token: the mean of the hosts that may answer, and the most.

    A request may go to any of them.
    """

    prompt_usd: Decimal
    completion_usd: Decimal
    dearest_prompt_usd: Decimal
    dearest_completion_usd: Decimal

    def longest_usd(self, max_tokens: int) -> Decimal:
        """Price of the longest answer to a long prompt, at the dearest host."""
        prompt = self.dearest_prompt_usd * _LONG_PROMPT
        return prompt + self.dearest_completion_usd * max_tokens


def read_prices(hosts: tuple[Host, ...]) -> Prices | None:
    """The prices of hosts; `None` if none of them tells its own."""
    prompt = [host.prompt_usd for host in hosts if host.prompt_usd is not None]
    completion = [host.completion_usd for host in hosts if host.completion_usd is not None]
    if not prompt or not completion:
        return None
    return Prices(
        prompt_usd=sum(prompt, Decimal(0)) / len(prompt),
        completion_usd=sum(completion, Decimal(0)) / len(completion),
        dearest_prompt_usd=max(prompt),
        dearest_completion_usd=max(completion),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The cost of so many prompts that are not answered yet, in US dollars.

    Attributes:
        prompt_tokens: Of all of them, estimated.
        expected_usd: At the mean price, with answers of the usual length.
        worst_usd: At the dearest price, with answers as long as `max_tokens`.
    """

    prompts: int
    prompt_tokens: int
    max_tokens: int
    expected_usd: Decimal
    worst_usd: Decimal

    def is_beyond(self, left_usd: Decimal | None) -> bool:
        """Whether more is expected than is left of the cap."""
        return left_usd is not None and self.expected_usd > left_usd

    def describe(self, left_usd: Decimal | None) -> str:
        """One line; with a cap, what is left of it and what that means."""
        usual = min(_USUAL_ANSWER, self.max_tokens)
        line = (
            f"{self.prompts} prompts of about {self.prompt_tokens} tokens, less what the store "
            f"answers: ${self.expected_usd:.4f} expected with {usual} tokens an answer, "
            f"${self.worst_usd:.4f} at most with --max_tokens {self.max_tokens}"
        )
        return line if left_usd is None else f"{line}; {self._under(left_usd)}"

    def _under(self, left_usd: Decimal) -> str:
        left = f"--max_cost_usd leaves ${left_usd:.4f}"
        if self.is_beyond(left_usd):
            return f"WARNING: {left}: the run will stop in time, and go on with a higher cap"
        return f"{left}, which may be reached" if self.worst_usd > left_usd else left


def project(prices: Prices, prompts: int, prompt_tokens: int, max_tokens: int) -> Projection:
    """What so many prompts cost, of so many tokens all together."""
    usual = min(_USUAL_ANSWER, max_tokens)
    expected = prices.prompt_usd * prompt_tokens + prices.completion_usd * usual * prompts
    worst = prices.dearest_prompt_usd * prompt_tokens
    worst += prices.dearest_completion_usd * max_tokens * prompts
    return Projection(
        prompts=prompts,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        expected_usd=expected,
        worst_usd=worst,
    )
