"""Why attention is scaled: `python -m hotmax.view.saturation [picture.png]`.

One query, 128 keys, 512 features, all normal. Without the scale one key takes almost all the
weight, and p (1 - p), through which a gradient must pass, vanishes; with it the weight is spread.
"""

from __future__ import annotations

import sys

from hotmax import plots


def main() -> None:
    found = plots.attention_scaling()
    for name, result in (
        ("without a scale", found.unscaled),
        (f"scaled by 1 / sqrt({found.features})", found.scaled),
    ):
        print(f"{name}\n{'-' * len(name)}\n{result}\n")
    if len(sys.argv) < 2:
        return
    try:
        figure = plots.plot_attention_scaling(found)
    except ImportError as error:
        sys.exit(str(error))
    figure.savefig(sys.argv[1], dpi=150)
    print(f"written: {sys.argv[1]}")


if __name__ == "__main__":
    main()
