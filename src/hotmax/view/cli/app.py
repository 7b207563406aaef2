"""The commands, and how their arguments are read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO
from typing import Any

from cyclopts import App, CycloptsError
from rich.console import Console

import hotmax as hm
from hotmax._core.version import __version__
from hotmax.view.cli.bench import bench
from hotmax.view.cli.calibrate import calibrate
from hotmax.view.cli.compile import compile
from hotmax.view.cli.decide import compare, decide
from hotmax.view.cli.doctor import doctor
from hotmax.view.cli.evaluate import evaluate
from hotmax.view.cli.explain import explain
from hotmax.view.cli.explore import explore
from hotmax.view.cli.predictions import apply, report
from hotmax.view.cli.probabilities import sample, softmax, sweep
from hotmax.view.cli.scorecard import laws
from hotmax.view.cli.tour import tour

COMMANDS: tuple[Callable[..., Any], ...] = (
    softmax,
    sweep,
    sample,
    report,
    calibrate,
    apply,
    evaluate,
    compare,
    decide,
    explore,
    explain,
    tour,
    laws,
    bench,
    compile,
    doctor,
)
UNWRAPPED = 1000  # columns of help in a pipe: a line for each option


def make(page: StringIO) -> App:
    """The commands; help is printed to the terminal if there is one, or else to `page`."""
    watched = sys.stdout.isatty()
    app = App(
        name="hotmax",
        help="Logits to probabilities and decisions that can be trusted, at every temperature.",
        version=f"hotmax {__version__}",
        help_format="markdown",
        help_formatter="default" if watched else "plain",  # frames are for eyes
        console=Console() if watched else Console(file=page, width=UNWRAPPED),
        suppress_keyboard_interrupt=False,
    )
    for number, command in enumerate(COMMANDS):
        app.command(App(sort_key=number, default_command=command, name=command.__name__))
    return app


def run(arguments: list[str]) -> int:
    """Run a command; ValueError where the arguments do not fit it."""
    page = StringIO()
    app = make(page)
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        if command in COMMANDS:
            assert callable(hm.softmax)  # what was deferred until now is imported
        code = command(*bound.args, **bound.kwargs)
    except CycloptsError as error:
        what = str(error).partition(" Available commands")[0].rstrip(".")
        raise ValueError(f"{what}; hotmax --help says more") from error
    for line in page.getvalue().splitlines():
        print(line.rstrip())
    return code if isinstance(code, int) else 0
