"""What a family of calibration maps is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hotmax._core.arrays import Array
from hotmax.calibration.examples import Examples

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """How a map is fitted and applied. `size` is how many numbers it has, to rank simplicity."""

    fit: Callable[[Examples, float, int], Parameters]  # examples, penalty, bins
    apply: Callable[[Array, Parameters], Array]  # logits (float64), parameters -> probabilities
    size: Callable[[int, int], int]  # classes, bins
    two_classes: bool = False
