"""Results as what JSON has, and text that can be shown."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from hotmax.calibration.assessment import Assessment
from hotmax.calibration.estimate import Estimate


def json_value(value: Any) -> Any:
    """Dataclasses, arrays and tuples as what JSON has; an estimate as its value and interval."""
    if isinstance(value, Estimate):
        return {"value": json_value(value.value), "interval": json_value(value.interval)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: json_value(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not (field.name == "weights" and getattr(value, field.name) is None)
        } | ({"verdict": value.verdict} if isinstance(value, Assessment) else {})
    if isinstance(value, np.ndarray):
        return json_value(value.tolist())
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def printable(text: str) -> str:
    """Text without what cannot be shown, such as control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
