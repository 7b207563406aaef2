"""The figures in the README, taken from the tables: `make figures` writes them.

`tables.publish` does so as well, so that a new table and the README always agree.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "docs" / "tables"
README = ROOT / "README.md"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"


def found(name: str, pattern: str) -> re.Match[str]:
    """Where a table has a figure; an error that names the table where it has not."""
    match = re.search(pattern, (TABLES / f"{name}.md").read_text(encoding="utf-8"))
    if match is None:
        raise SystemExit(f"docs/tables/{name}.md has nothing like {pattern!r}")
    return match


def worst(name: str, library: str) -> str:
    """The largest figure of a column of the first accuracy table, at temperature 1."""
    text = (TABLES / "accuracy.md").read_text(encoding="utf-8")
    table = re.search(rf"\*\*{name}\. .*?\n\n((?:\|.*\n)+)", text)
    if table is None:
        raise SystemExit(f"docs/tables/accuracy.md has no table of {name}")
    header, _, *rows = (line.strip("| ").split(" | ") for line in table[1].splitlines())
    column = header.index(library)
    value = max(float(row[column]) for row in rows if not row[0].startswith("all of these"))
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def lines() -> str:
    """The part of the README between its markers."""
    loss = found("losses", r"cross_entropy (\S+ x \S+): memory above the gradient \| ([\d.]+) MB")
    theirs = found("losses", r"PyTorch's: memory above the gradient \| ([\d.]+) MB")
    top_p = found("sampling", r"\| (top_p=0.9, 32 x \d+) \| \S+ ms \| \S+ ms \| ([\d.]+) ")
    fit = found("calibration", r"fit_temperature (1,000,000 x 10) \| ([\d.]+) ms \| ([\d.]+)")
    peers = ("SciPy float64", "PyTorch float64")
    other = " and ".join(f"{worst('softmax', peer)} for {peer.split()[0]}" for peer in peers)
    right = worst("softmax", "hotmax float64")
    times = f"{float(fit[3]):.0f}"
    memory, more = f"{float(loss[2]):.1f} MB", f"{float(theirs[1]):,.0f} MB"
    return f"""\
- **Right.** The worst error of softmax is {right} units in the last place in float64
  ({other}), on [rows that are hard](docs/tables/accuracy.md).
- **Lean.** Cross entropy and its gradient of {loss[1]} logits take {memory} beside the gradient,
  where PyTorch takes {more}: [losses](docs/tables/losses.md).
- **Sampling.** One draw for each row with {top_p[1]}: {float(top_p[2]):.0f} times as fast as
  transformers' warpers and torch.multinomial: [sampling](docs/tables/sampling.md).
- **Calibration.** A temperature fitted to {fit[1]} logits in {float(fit[2]):.0f} ms, {times}
  times as fast as scikit-learn: [calibration](docs/tables/calibration.md)."""


def written() -> str:
    """The README as it should be."""
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(f"{BEGIN}\n")
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{lines()}\n{END}{after}"


def main() -> None:
    README.write_text(written(), encoding="utf-8")


if __name__ == "__main__":
    main()
