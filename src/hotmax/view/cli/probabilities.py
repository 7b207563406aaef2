"""softmax, sweep and sample: one row of logits, looked at."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

import hotmax as hm
from hotmax._core.arrays import Array
from hotmax._core.files import whole
from hotmax.view.cli.options import (
    COMMON,
    READING,
    Common,
    Flag,
    Reading,
    Temperature,
    Temperatures,
    check_free,
    numbers,
)
from hotmax.view.cli.output import Table, say, say_json, screen_width, sparkline
from hotmax.view.cli.rows import Rows, rows_of

Logits = Annotated[str, Parameter(name="LOGITS", show_default=False)]


def softmax(
    *logits: Logits,
    temperature: Temperature = 1.0,
    row: int | None = None,
    top: int | None = None,
    reading: Reading = READING,
    common: Common = COMMON,
) -> None:
    """Probabilities of logits, their logarithms and entropy.

    Example: hotmax softmax 2 1 -3 -T 0.5

    Example: echo "1 2 3" | hotmax softmax

    Parameters
    ----------
    logits
        Numbers; or a FILE (.npy, .npz, .csv, .parquet, .safetensors, or text with a row on each
        line); or - for the standard input.
    temperature
        Any number: 0, inf and below 0 too.
    row
        Only this row of a file, counted from 0.
    top
        Only so many classes, the likeliest first.
    """
    found = rows_of(logits, row, reading)
    if top is not None and top < 1:
        raise ValueError(f"--top must be at least 1, got {top}")
    if common.json:
        rows = [softmax_data(x, temperature, found, top) for x in found.rows]
        say_json({"temperature": temperature, "rows": rows})
        return
    first = row or 0
    for number, x in enumerate(found.rows):
        if len(found.rows) > 1:
            say(*([""] if number else []), f"row {first + number}")
        say(*softmax_table(x, temperature, found, top).lines(), summary(x, temperature))


def order_of(p: Array, top: int | None) -> Array:
    """The classes to show: all as they are, or the likeliest first."""
    return np.arange(p.size) if top is None else np.argsort(-p, kind="stable")[:top]


def softmax_data(x: Array, temperature: float, found: Rows, top: int | None) -> dict[str, Any]:
    p = hm.softmax(x, temperature=temperature)
    logs = hm.log_softmax(x, temperature=temperature)
    order = order_of(p, top)
    return {
        "class_names": [found.name(c) for c in order.tolist()],
        "logits": x[order],
        "probabilities": p[order],
        "log_probabilities": logs[order],
        "entropy": float(hm.entropy(x, temperature=temperature)),
        "logsumexp": float(hm.logsumexp(x, temperature=temperature)),
    }


def softmax_table(x: Array, temperature: float, found: Rows, top: int | None) -> Table:
    p = hm.softmax(x, temperature=temperature)
    logs = hm.log_softmax(x, temperature=temperature)
    order = order_of(p, top).tolist()
    rows = [[found.name(c), f"{x[c]:g}", f"{p[c]:.6g}", f"{logs[c] + 0.0:.6g}"] for c in order]
    return Table(("class", "logit", "p", "log p"), rows, bars=[float(p[c]) for c in order])


def summary(x: Array, temperature: float) -> str:
    entropy = float(hm.entropy(x, temperature=temperature))
    return (
        f"temperature {temperature:g}, entropy {entropy:.6g} nats, "
        f"effective classes {math.exp(entropy):.4g}"
    )


PICTURES = (".png", ".svg", ".pdf")
SWEEP = "0,0.1,0.2,0.5,1,2,5,10,inf"


def sweep(
    *logits: Logits,
    temperatures: Temperatures = SWEEP,
    row: int | None = None,
    plot: Path | None = None,
    force: Flag = False,
    reading: Reading = READING,
    common: Common = COMMON,
) -> None:
    """Probabilities of one row of logits over temperatures.

    Example: hotmax sweep 1 2 3

    Example: hotmax sweep 1 2 3 -T 0.1,1,10 --plot sweep.png

    Parameters
    ----------
    logits
        Numbers; or a FILE; or - for the standard input.
    temperatures
        Numbers between commas.
    row
        Which row of a file, counted from 0.
    plot
        Draw the sweep, over temperatures of its own unless some are given: .png, .svg or .pdf.
        Needs matplotlib.
    force
        Overwrite the picture if it is there.
    """
    found = rows_of(logits, row, reading)
    x = found.only("sweep")
    t_values = np.array(numbers(temperatures, "--temperatures"))
    check_picture(plot, force)
    rows = np.broadcast_to(x, (t_values.size, x.size))
    p = hm.softmax(rows, temperature=t_values[:, None])
    entropy = hm.entropy(rows, temperature=t_values[:, None])
    if plot is not None:
        from hotmax import plots

        given = None if temperatures == SWEEP else np.sort(t_values)
        swept = plots.sweep(x, given, class_names=found.class_names)
        save_picture(plots.plot_sweep(swept), plot, force)
    names = [found.name(c) for c in range(x.size)]
    if common.json:
        data = {"class_names": names, "logits": x, "temperatures": t_values}
        say_json({**data, "probabilities": p, "entropy": entropy, "plot": text_of(plot)})
        return
    show_sweep(names, t_values, p, entropy)
    if plot is not None:
        say(f"written: {plot}")


def show_sweep(names: Sequence[str], t_values: Array, p: Array, entropy: Array) -> None:
    """Classes side by side, as many as the terminal has room for."""
    sparks = [sparkline(column.tolist()) for column in p.T]
    width = screen_width()
    cell = max(t_values.size, 9, *map(len, names)) + 2
    fit = len(names) if width is None else max((width - 17) // cell, 1)
    for start in range(0, len(names), fit):
        part = range(start, min(start + fit, len(names)))
        rows = [
            [f"{t:g}", *(f"{p[i, c]:.6f}" for c in part), f"{entropy[i]:.4f}"]
            for i, t in enumerate(t_values)
        ]
        rows.append(["", *(sparks[c] for c in part), ""])
        table = Table(("T", *(names[c] for c in part), "entropy"), rows)
        say(*([""] if start else []), *table.lines())


def sample(
    *logits: Logits,
    temperatures: Temperatures = "1",
    draws: int = 1000,
    seed: int | None = None,
    row: int | None = None,
    plot: Path | None = None,
    force: Flag = False,
    reading: Reading = READING,
    common: Common = COMMON,
) -> None:
    """Draw classes; compare how often each came with its probability.

    Example: hotmax sample 2 1 3 5 4 -T 1 --draws 1000 --seed 0

    Parameters
    ----------
    logits
        Numbers; or a FILE; or - for the standard input.
    temperatures
        Numbers between commas: so many experiments.
    draws
        How many draws at each temperature. z says how many standard errors a frequency is off.
    seed
        The same seed gives the same draws; without one, they differ each time.
    row
        Which row of a file, counted from 0.
    plot
        Draw the frequencies: .png, .svg or .pdf. Needs matplotlib.
    force
        Overwrite the picture if it is there.
    """
    found = rows_of(logits, row, reading)
    x = found.only("sample")
    t_values = numbers(temperatures, "--temperatures")
    check_picture(plot, force)
    chosen = secrets.randbelow(1 << 31) if seed is None else seed
    result = hm.frequencies(x, temperatures=t_values, draws=draws, seed=chosen)
    if plot is not None:
        save_picture(result.plot(), plot, force)
    names = [found.name(c) for c in range(x.size)]
    if common.json:
        data = {
            "class_names": names,
            "logits": x,
            "temperatures": t_values,
            "draws": draws,
            "seed": chosen,
        }
        data |= {"counts": result.counts, "frequencies": result.frequencies}
        data |= {"probabilities": result.probabilities, "plot": text_of(plot)}
        say_json(data)
        return
    for i, t in enumerate(t_values):
        p, share, error = result.probabilities[i], result.frequencies[i], result.standard_errors[i]
        with np.errstate(all="ignore"):
            away = np.where(error > 0, (share - p) / error, 0.0)
        rows = []
        for c, name in enumerate(names):
            numbers_of = f"{x[c]:g}", f"{p[c]:.4f}", f"{share[c]:.4f}", f"{result.counts[i, c]}"
            rows.append([name, *numbers_of, f"{away[c]:+.1f}"])
        head = ("class", "logit", "p", "drawn", "count", "z")
        say(*([""] if i else []), *Table(head, rows, bars=share.tolist()).lines())
        say(f"temperature {t:g}, {draws} draws, seed {chosen}")
    if plot is not None:
        say(f"written: {plot}")


# --- pictures ---------------------------------------------------------------------------------


def text_of(path: Path | None) -> str | None:
    return None if path is None else str(path)


def check_picture(path: Path | None, force: bool) -> None:
    """Complain about a picture that could not be written, before it is drawn."""
    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise ValueError(f"{path}: the name of a picture must end in {', '.join(PICTURES)}")
    check_free(path, force)
    try:
        import matplotlib
    except ImportError:
        raise ImportError('pictures need matplotlib: pip install "hotmax[plot]"') from None
    matplotlib.use("agg")  # no window


def save_picture(figure: Any, path: Path, force: bool) -> None:
    """Write a figure to a file, and close it."""
    from matplotlib import pyplot

    try:
        with whole(path, force=force) as file:
            figure.savefig(file, format=path.suffix.lower().removeprefix("."), dpi=150)
    finally:
        pyplot.close(figure)
