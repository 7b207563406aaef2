"""Why attention is scaled: `python -m hotmax.view.saturation [picture.png]`.

One query, 128 keys, 512 features, all normal. Without the scale one key takes almost all the
weight, and p (1 - p), through which a gradient must pass, vanishes; with it the weight is spread.
"""

from __future__ import annotations

import sys

import numpy as np

import hotmax as hm


def main() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((1, 512)), rng.standard_normal((128, 512))
    found = {
        "without a scale": hm.attention_saturation(q, k, scale=1.0),
        "scaled by 1 / sqrt(512)": hm.attention_saturation(q, k),
    }
    for name, result in found.items():
        print(f"{name}\n{'-' * len(name)}\n{result}\n")
    if len(sys.argv) < 2:
        return
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        sys.exit('plots need matplotlib: pip install "hotmax[plot]"')
    figure, axes = plt.subplots(2, 2, figsize=(5.5, 5), layout="constrained", sharex=True)
    for row, (name, result) in zip(axes, found.items(), strict=True):
        result.plot(row)
        row[0].set_title(name, loc="left", fontsize=11, fontweight="bold")
        row[1].set_ylabel("")
    for ax in axes[0]:
        ax.set_xlabel("")
    figure.savefig(sys.argv[1], dpi=150)
    print(f"written: {sys.argv[1]}")


if __name__ == "__main__":
    main()
