"""Who breaks which law, by trying them: `make laws` writes src/hotmax/laws/breakers.json.

`hotmax laws --explain` and docs/topics/law-by-law.md show it. Needs SciPy, PyTorch and JAX.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from hotmax import laws
from hotmax.laws.breakers import FILE, TRIED, breakers_of


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formulas that overflow on purpose
        tried = laws.compare(TRIED)
    path = Path(laws.__file__).parent / FILE
    path.write_text(breakers_of(tried).to_json(), encoding="utf-8")
    print(tried)
    print(f"written: {FILE}, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
