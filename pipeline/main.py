"""`python -m pipeline.main [run|show|import|check] …`: picks the sub-command, sets the exit code.

It defines nothing that travels: what is defined in `__main__` comes back as another class.
"""

import errno
import importlib
import io
import logging
import signal
import sys
from types import FrameType

COMMANDS = {
    "run": "ask a model every prompt and write the exact token ids of its answers (the default)",
    "show": "print one sample or rejection with its special tokens marked",
    "import": "put answers that you already have into a store, where run finds them",
    "check": "hold a profile against its tokenizer, golden vectors and chat template",
}
_MODULES = {"import": "import_answers"}  # a word that no module can be called by
USAGE = """usage: python -m pipeline.main [COMMAND] [FLAGS]

commands:
{commands}

COMMAND --help tells the flags of each. Exit codes: 0 complete, 1 a bug or a fault of the machine,
2 the command cannot be meant, 3 too many bad rows, 4 stopped by the spend cap, 5 fatal answer of
the service, 6 `check` found a difference, 130 interrupted; all of them leave a store from which the
same command goes on.
"""
MACHINE, CONFIG_ERROR, INTERRUPTED = 1, 2, 130
_FULL_OR_READ_ONLY = {errno.ENOSPC, errno.EROFS, errno.EDQUOT}


def main(argv: list[str]) -> int:
    """Runs one sub-command; without one it is `run`."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if argv[:1] in (["--help"], ["-h"], []):
        lines = "\n".join(f"  {name:<6} {what}" for name, what in COMMANDS.items())
        print(USAGE.format(commands=lines))
        return 0 if argv else CONFIG_ERROR
    name, arguments = (argv[0], argv[1:]) if argv[0] in COMMANDS else ("run", argv)
    _set_up_output()
    try:
        return _run(name, arguments)
    except (KeyboardInterrupt, RuntimeError) as error:
        if "KeyboardInterrupt" not in repr(error):
            raise
        print("interrupted; the same command goes on from the store", file=sys.stderr)
        return INTERRUPTED
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # it is over: the exit code stands


def _run(name: str, arguments: list[str]) -> int:
    command = importlib.import_module(f"pipeline.{_MODULES.get(name, name)}")
    failures = importlib.import_module("transforms.failures")
    try:
        return int(command.run(arguments))
    except failures.ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return CONFIG_ERROR
    except failures.StoreError as error:
        print(f"error: {error}; what was kept stays, go on from it", file=sys.stderr)
        return MACHINE
    except OSError as error:
        if error.errno not in _FULL_OR_READ_ONLY:
            raise
        print(f"error: {error}; make room, and the same command goes on", file=sys.stderr)
        return MACHINE


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """While prompts are asked, the first signal lets come what is on its way; else at once."""
    loop = sys.modules.get("transforms.openrouter.loop")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _abort)
    if loop is None or not loop.ClientLoop.stop_all("interrupted"):
        raise KeyboardInterrupt
    print("\nstopping: waiting for what is on its way; again to abandon it", file=sys.stderr)


def _abort(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _set_up_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    # Beam warns of every output that is a tuple of collections; its errors come as exceptions.
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    # What passes through a DoFn is logged by Beam with its stack before `main` says it in one line.
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: not _is_said_by_main(record))
    for name in ("pipeline", "transforms"):
        logging.getLogger(name).setLevel(logging.INFO)


def _is_said_by_main(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    of_ours = kind is not None and kind.__name__ in {"ConfigError", "StoreError"}
    return of_ours or "KeyboardInterrupt" in record.getMessage()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
