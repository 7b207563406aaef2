"""The command line: `hotmax COMMAND ...`.

Exit codes: 0 if all went well; 1 if `doctor` has found something wrong, or hotmax itself has
failed; 2 for bad input; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP; 141 if the reader of
a pipe has gone. What is wrong is said in one line on the standard error; `--debug` shows where.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

BAD_INPUT, INTERNAL, INTERRUPTED, NO_READER = 2, 1, 130, 141
SIGNALLED = 128  # and the number of the signal, as a shell has it
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # `whole` names its file, so stdout has none
INSTALL = 'the command line needs cyclopts and rich: pip install "hotmax[cli]"'
ANYWHERE = ("--debug", "--json")  # options that may stand before the command too
STDIN = "/dev/stdin"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name may hold what ASCII has not
    try:
        with signals_as_exceptions():
            if given == ["--version"]:  # in a third of the time that importing all commands takes
                from hotmax._core.version import __version__

                print(f"hotmax {__version__}", flush=True)
                return 0
            from hotmax.view.cli.app import run

            code = run(in_order(given))
            sys.stdout.flush()
            return code
    except Terminated as error:
        give_up_output()
        return SIGNALLED + error.number
    except BrokenPipeError:
        give_up_output()
        return NO_READER
    except KeyboardInterrupt:
        return complain("stopped", INTERRUPTED)
    except (ValueError, TypeError, OSError, ImportError) as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, OSError):
            lost = not give_up_output()
            if error.filename is None and (lost or error.errno in FULL):
                error.filename = "the standard output"
        return complain(reason(error), BAD_INPUT)
    except MemoryError as error:
        return complain(f"not enough memory: {error}".removesuffix(": "), BAD_INPUT)
    except Exception as error:
        if debug:
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        return complain(f"hotmax has failed, and --debug shows where: {what}", INTERNAL)


class Terminated(BaseException):
    """The process was asked to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise, so that half-written files are removed.

    A signal that is ignored, as under nohup, stays so.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not end the clean-up
        raise Terminated(number)

    changed = []
    if threading.current_thread() is threading.main_thread():  # others may not set handlers
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, end)
                changed.append(number)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def open_standard_streams() -> None:
    """Put something in the place of a stream that was closed (`>&-`), for which Python has None.

    Otherwise the next file that is opened would get its number. Writing to the standard output then
    fails as it does for a closed file; what would go to the standard error is lost.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        if name != "stdin":  # whoever reads rows from it finds None, and says that there are none
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


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


def give_up_output() -> bool:
    """Flush the output; if that fails, drop it: Python would try again at its end, and complain."""
    try:
        sys.stdout.flush()
        return True
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False


def complain(text: str, code: int) -> int:
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    print(f"hotmax: {line}", file=sys.stderr)
    return code
