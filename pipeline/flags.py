"""The flags of `run`, in groups: each declared once."""

import argparse
from decimal import Decimal

from transforms.codes import Evidence
from transforms.encoding.formats import FORMATS
from transforms.encoding.loss_mask import DIALECTS
from transforms.openrouter.source import OPENROUTER, SOURCES
from transforms.openrouter.wire import DEFAULT_DELIVERY, DELIVERIES
from transforms.prompts.asking import Turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `run`."""
    for add_group in (_add_run, _add_input, _add_server, _add_request, _add_hosts, _add_limits,
                      _add_output):  # fmt: skip
        add_group(parser)


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--output", metavar="DIR",
        help="Folder of the result; appears whole, by one rename, when the run is complete. Only "
             "--explain_input needs none.")  # fmt: skip
    add("--runner", default="DirectRunner",
        help="DirectRunner (this machine), FlinkRunner, DataflowRunner, PortableRunner. Flags of "
             "Beam and of the runner may follow.")  # fmt: skip
    add("--job", choices=("all", "collect", "build"), default="all",
        help="collect asks and stores; build makes the output from the store and sends nothing."
        )  # fmt: skip
    add("--store", metavar="DIR|gs://BUCKET/PREFIX",
        help="Response store: every answer byte for byte, never paid twice. A bucket may be shared "
             "by hosts (Google's default credentials). Default: OUTPUT.store.")  # fmt: skip
    add("--dry_run", action="store_true",
        help="Read all prompts and say what a run would do and may cost; nothing is asked, nothing "
             "is written.")  # fmt: skip


def _add_input(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is read")
    group.add_argument("--input", required=True, metavar="[LABEL=]GLOB,…",
        help="Prompt files: paths, globs or folders, local, gs:// or "
             "hf://datasets/OWNER/NAME@COMMIT/GLOB, comma-separated, each optionally LABEL=GLOB "
             "(the row's dataset). JSON lines, JSON, Parquet, text lines in "
             ".txt; what a file is, gzip too, is found by content, the shape of a record by its "
             "keys.")  # fmt: skip
    group.add_argument("--explain_input", action="store_true",
        help="Show how the first record of each file is read; nothing is asked, nothing is "
             "written.")  # fmt: skip
    group.add_argument("--prompt_field", metavar="NAME",
        help="Field or column that is the prompt, before any known shape.")  # fmt: skip
    group.add_argument("--limit", type=int, metavar="N",
        help="Read N records of all files together: the first ones, or with --shuffle_seed N "
             "that the seed picks.")  # fmt: skip
    group.add_argument("--shuffle_seed", type=int, metavar="N",
        help="Ask in an order that the seed makes: records are mixed within 2,048 of a file."
        )  # fmt: skip
    group.add_argument("--dedup", choices=("id", "content"), default="id",
        help="id: a prompt whose id was read before is refused; content: also one that asks what "
             "another asked under another id. Default: id.")  # fmt: skip
    group.add_argument("--turns", choices=tuple(Turns), default=Turns.ALL,
        help="Which turns of a conversation are asked: all, in order, over the model's own earlier "
             "answers; or last, over the recorded ones. Default: all.")  # fmt: skip
    group.add_argument("--max_prompt_tokens", type=int, metavar="N",
        help="Refuse prompts of more tokens, as the model's template renders them; none is cut."
        )  # fmt: skip


def _add_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the model and its server")
    kinds = "; ".join(f"{source.name}: {source.about}" for source in SOURCES.values())
    group.add_argument("--source", choices=tuple(SOURCES), default=OPENROUTER.name,
        help=f"Kind of server. {kinds}.")  # fmt: skip
    places = ", ".join(f"{s.base_url} ({s.name})" for s in SOURCES.values() if s.base_url)
    group.add_argument("--base_url", metavar="URL",
        help=f"Where to POST /chat/completions. Default: {places}.")  # fmt: skip
    keys = ", ".join(f"{source.api_key} ({source.name})" for source in SOURCES.values())
    group.add_argument("--api_key", metavar="REFERENCE",
        help=f"Where the key is: env:NAME, file:PATH, or none; never the key itself. "
             f"Default: {keys}.")  # fmt: skip
    group.add_argument("--model", metavar="SLUG", help="Model to ask for; default: the profile's.")
    group.add_argument("--profile", default="kimi-k2.5", metavar="NAME|PATH",
        help="The model's profile: a name in templates/models or the path of a TOML file."
        )  # fmt: skip
    group.add_argument("--tokenizer", metavar="DIR|hf://REPO@REVISION",
        help="Where the tokenizer's files are, instead of the profile's own source; the profile's "
             "checksum and golden vectors still hold.")  # fmt: skip


def _add_request(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is asked")
    group.add_argument("--max_tokens", type=int, default=16384, metavar="N",
        help="Longest answer, in tokens.")  # fmt: skip
    for name, kind in (("temperature", float), ("top_p", float), ("seed", int)):
        group.add_argument(f"--{name}", type=kind, metavar="N" if kind is int else "X",
            help="Not sent unless given.")  # fmt: skip
    group.add_argument("--samples_per_prompt", type=int, default=1, metavar="N",
        help="Ask each prompt N times, each conversation by itself; sample 2 is sent with --seed "
             "and 1, and so on. A record's own sample_index asks for that one alone."
        )  # fmt: skip
    group.add_argument("--delivery", choices=DELIVERIES, default=DEFAULT_DELIVERY,
        help="whole answers, a stream, or auto: a stream where no tools are declared and none "
             f"of the server's token ids are lost by it. Default: {DEFAULT_DELIVERY}.")  # fmt: skip
    group.add_argument("--escape_special_text", action="store_true",
        help="Put a blank into literals of special tokens in prompts, as < |im_end|>, instead of "
             "refusing such prompts.")  # fmt: skip
    group.add_argument("--extra_body", default="{}", metavar="JSON",
        help='Further fields of every request, as {"top_k": 40}.')  # fmt: skip


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which of OpenRouter's hosts may answer")
    group.add_argument("--provider_only", metavar="NAME,…",
        help="These alone, as chutes or deepinfra/fp4, and no other when one of them fails or "
             "gives nothing of use. For ids that can be proved, name one.")  # fmt: skip
    group.add_argument("--provider_ignore", metavar="NAME,…", help="None of these.")
    group.add_argument("--max_price", metavar="PROMPT,COMPLETION",
        help="None that is dearer, in US dollars per million tokens, as 0.6,2.6.")  # fmt: skip
    group.add_argument("--quantizations", metavar="NAME,…",
        help="Those alone that run the model so, as int4,fp8.")  # fmt: skip


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    group.add_argument("--max_in_flight", type=int, default=64, metavar="N",
        help="Most requests at once, all worker processes together; fewer while the service "
             "refuses for load.")  # fmt: skip
    group.add_argument("--requests_per_minute", type=float, metavar="N",
        help="Most requests a minute, all worker processes of a host together.")  # fmt: skip
    group.add_argument("--max_cost_usd", type=Decimal, metavar="X",
        help="Most that may be spent, what the store's answers cost before included. The run "
             "stops in time with exit code 4; the same command with a higher cap goes on."
        )  # fmt: skip


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is a good sample, and its files")
    group.add_argument("--min_evidence", choices=[item.value for item in Evidence], default="B2",
        help="Weakest evidence of a good sample, from A1 (ids of the server) to C (none)."
        )  # fmt: skip
    group.add_argument("--habits", metavar="FILE",
        help="A habits.json to judge by, instead of what collect learned and left in the store's "
             "folder, or in OUTPUT.habits.json on this machine if the store is a bucket."
        )  # fmt: skip
    group.add_argument("--formats", default="parquet,tfrecord", metavar="NAME,…",
        help=f"Formats of the samples: any of {', '.join(FORMATS)}.")  # fmt: skip
    group.add_argument("--loss_mask", choices=tuple(DIALECTS), default="exact",
        help="Whose mask jsonl and arrow hold: exact is 1 on what was sampled and nothing else."
        )  # fmt: skip
    group.add_argument("--draft_vocab_size", type=int, metavar="N",
        help="Write maps to a drafter's vocabulary: all special ids and the most frequent others."
        )  # fmt: skip
    group.add_argument("--max_bad_ratio", type=float, default=0.5, metavar="X",
        help="Exit with 3 if more than this share of the prompts did not become samples."
        )  # fmt: skip
    group.add_argument("--overwrite", action="store_true",
        help="Replace an output that was made with another configuration.")  # fmt: skip
