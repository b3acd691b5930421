"""`python -m pipeline.main [run|show] …`: picks the sub-command, sets the exit code.

It defines nothing that travels: what is defined in `__main__` comes back as another class.
"""

import importlib
import io
import logging
import signal
import sys
from types import FrameType

COMMANDS = {
    "run": "ask a model every prompt and write the exact token ids of its answers (the default)",
    "show": "print one sample or rejection with its special tokens marked",
}
USAGE = """usage: python -m pipeline.main [COMMAND] [FLAGS]

commands:
{commands}

COMMAND --help tells the flags of each. Exit codes: 0 complete, 1 a bug, 2 the command cannot be
meant, 3 too many bad rows, 5 fatal answer of the service, 130 interrupted; all of them leave a
store from which the same command goes on.
"""
CONFIG_ERROR, INTERRUPTED = 2, 130


def main(argv: list[str]) -> int:
    """Runs one sub-command; without one it is `run`."""
    if argv[:1] in (["--help"], ["-h"], []):
        lines = "\n".join(f"  {name:<6} {what}" for name, what in COMMANDS.items())
        print(USAGE.format(commands=lines))
        return 0 if argv else CONFIG_ERROR
    name, arguments = (argv[0], argv[1:]) if argv[0] in COMMANDS else ("run", argv)
    _set_up_logging()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    signal.signal(signal.SIGTERM, _interrupt)
    command = importlib.import_module(f"pipeline.{name}")
    from transforms.failures import ConfigError  # noqa: PLC0415 - after the usage, which is fast

    try:
        return int(command.run(arguments))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return CONFIG_ERROR
    except (KeyboardInterrupt, RuntimeError) as error:
        if "KeyboardInterrupt" not in repr(error):
            raise
        print("interrupted; the same command goes on from the store", file=sys.stderr)
        return INTERRUPTED


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _set_up_logging() -> None:
    # Beam warns of every output that is a tuple of collections; its errors come as exceptions.
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    # What passes through a DoFn is logged by Beam with its stack before `main` says it in one line.
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: not _is_said_by_main(record))
    for name in ("pipeline", "transforms"):
        logging.getLogger(name).setLevel(logging.INFO)


def _is_said_by_main(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    of_config = kind is not None and kind.__name__ == "ConfigError"
    return of_config or "KeyboardInterrupt" in record.getMessage()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
