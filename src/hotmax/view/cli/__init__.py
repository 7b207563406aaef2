"""The command line: `hotmax COMMAND ...`.

Exit codes: 0 if all went well; 1 if `doctor` has found something wrong, or hotmax itself has
failed; 2 for bad input; 130 after Ctrl-C; 141 if the reader of a pipe has gone. What is wrong is
said in one line on the standard error; `--debug` shows where.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

BAD_INPUT, INTERNAL, INTERRUPTED, NO_READER = 2, 1, 130, 141
INSTALL = 'the command line needs cyclopts and rich: pip install "hotmax[cli]"'
ANYWHERE = ("--debug", "--json")  # options that may stand before the command too
STDIN = "/dev/stdin"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name may hold what ASCII has not
    try:
        from hotmax.view.cli.app import run

        code = run(in_order(given))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        give_up_output()
        return NO_READER
    except KeyboardInterrupt:
        return complain("stopped", INTERRUPTED)
    except (ValueError, TypeError, OSError, ImportError) as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, OSError):
            give_up_output()
        return complain(reason(error), BAD_INPUT)
    except MemoryError as error:
        return complain(f"not enough memory: {error}".removesuffix(": "), BAD_INPUT)
    except Exception as error:
        if debug:
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        return complain(f"hotmax has failed, and --debug shows where: {what}", INTERNAL)


def in_order(given: list[str]) -> list[str]:
    """Options that may stand anywhere behind the others, and a name for the standard input."""
    end = given.index("--") if "--" in given else len(given)
    head = [STDIN if token == "-" else token for token in given[:end] if token not in ANYWHERE]
    anywhere = [token for token in ANYWHERE if token in given[:end]]
    if not head:  # no command: there is nothing that they could apply to
        return given[end:]
    return [*head, *anywhere, *given[end:]]


def reason(error: Exception) -> str:
    """What to tell, in one line."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name.partition(".")[0]
        missing = f"{name} is not installed: pip install {name}"
        return INSTALL if name in ("cyclopts", "rich") else missing
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def give_up_output() -> None:
    """What could not be written is not tried again when Python ends, which would complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str, code: int) -> int:
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    print(f"hotmax: {line}", file=sys.stderr)
    return code
