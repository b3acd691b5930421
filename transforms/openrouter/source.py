"""The kinds of servers: what differs between them is an entry here, never a branch."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A kind of server.

    Attributes:
        about: What it is, in a few words.
        base_url: Where it is unless something else is said; `None`: it must be said.
        api_key: Reference of its key unless something else is said.
        names_model: Its answers carry the model that was asked for.
        names_provider: Its answers say who made them; others are their own provider.
        has_catalogue: It tells of models, hosts, prices and keys on paths of its own, and chooses
            hosts by the `provider` object of a request.
        tells_cost: `usage.cost` may be in its answers.
        pads: Something comes every few seconds while it generates: silence means it is gone.
        headers: Sent with every request.
        cache: Sent with the first sample of a body: the service keeps the answer, and gives it
            again for nothing if it was lost on the way. It keeps only what asked for it.
        cache_anew: Sent beside it where what is kept is of no use.
        body: Fields of every request: they ask for the ids that the server sampled.
        body_in_streams: False: a stream with these fields is refused.
        thinking: Where a request switches thinking on or off: an object of the body, and its key.
        counts_streams_if_asked: Its streams carry usage only with `stream_options`.
        history: Names that the thought of an earlier answer is sent under.
    """

    name: str
    about: str
    base_url: str | None
    api_key: str = "none"
    names_model: bool = False
    names_provider: bool = False
    has_catalogue: bool = False
    tells_cost: bool = True
    pads: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    cache: tuple[tuple[str, str], ...] = ()
    cache_anew: tuple[tuple[str, str], ...] = ()
    body: tuple[tuple[str, Any], ...] = ()
    body_in_streams: bool = True
    thinking: tuple[str, str] = ("reasoning", "enabled")
    counts_streams_if_asked: bool = True
    history: tuple[str, ...] = ("reasoning",)


OPENROUTER = Source(
    name="openrouter",
    about="answers must name the asked model and a provider",
    base_url="https://openrouter.ai/api/v1",
    api_key="env:OPENROUTER_API_KEY",
    names_model=True,
    names_provider=True,
    has_catalogue=True,
    pads=True,
    headers=(("X-OpenRouter-Metadata", "enabled"),),
    cache=(("X-OpenRouter-Cache", "true"), ("X-OpenRouter-Cache-TTL", "86400")),
    cache_anew=(("X-OpenRouter-Cache-Clear", "true"),),
    counts_streams_if_asked=False,
)
# An engine serves one model, and calls it by the first of its names (vLLM) or by whatever was asked
# (SGLang): the name in an answer says nothing. A name that vLLM does not know is a 404.
VLLM = Source(
    name="vllm",
    about="asks vLLM for the token ids",
    base_url="http://127.0.0.1:8000/v1",
    tells_cost=False,
    body=(("return_token_ids", True),),
    thinking=("chat_template_kwargs", "thinking"),
    # Releases before November 2025 read the second name, later ones (vllm PR 27752) the first.
    history=("reasoning", "reasoning_content"),
)
SGLANG = Source(
    name="sglang",
    about="asks SGLang for the token ids, which it gives with whole answers only",
    base_url="http://127.0.0.1:30000/v1",
    tells_cost=False,
    # Releases before `return_token_ids` (sglang PR 30917) give the ids in `meta_info`, beside the
    # logprobs; a field that a release does not know is ignored.
    body=(
        ("return_token_ids", True),
        ("return_prompt_token_ids", True),
        ("return_meta_info", True),
        ("logprobs", True),
    ),
    body_in_streams=False,
    thinking=("chat_template_kwargs", "thinking"),
    history=("reasoning_content",),
)
OPENAI = Source(
    name="openai",
    about="any server of that API; it is its own provider",
    base_url=None,
    api_key="env:OPENAI_API_KEY",
)
SOURCES = {source.name: source for source in (OPENROUTER, VLLM, SGLANG, OPENAI)}
