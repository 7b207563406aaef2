"""The settings of a sampler or of one request: names of the field, checked, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._backends.protocol import to_numpy
from hotmax._core.arrays import Array
from hotmax._sampling.edits import NO_PENALTY, PENALTIES, check_biases, check_penalties
from hotmax._sampling.steps import STEPS, Step, as_temperatures, check_step

# What transformers, vLLM, llama.cpp and OpenAI call a setting.
ALIASES = {
    "temp": "temperature",
    "repetition_penalty": "repetition",
    "repeat_penalty": "repetition",
    "frequency_penalty": "frequency",
    "presence_penalty": "presence",
    "logit_bias": "bias",
    "typical": "typical_p",
    "epsilon_cutoff": "epsilon",
    "eta_cutoff": "eta",
}
# Settings of several names: which stand for the numbers of which step.
NUMBER_PARTS = {
    "xtc_probability": ("xtc", 0),
    "xtc_threshold": ("xtc", 1),
    "mirostat_tau": ("mirostat", 0),
    "mirostat_eta": ("mirostat", 1),
}


@dataclass(frozen=True)
class Settings:
    """Checked settings: each number for all rows, or an array with one for each."""

    given: Mapping[str, Any]  # by the names of hotmax, as they came
    temperature: float | Array
    steps: tuple[Step, ...]  # with the temperature, in the order in which they came
    penalties: Mapping[str, float | Array]
    bias: Any

    @property
    def penalizes(self) -> bool:
        return any(np.any(self.penalties[name] != NO_PENALTY[name]) for name in self.penalties)

    @property
    def mirostat(self) -> Step | None:
        found = [step for step in self.steps if step.name == "mirostat" and not step.is_off]
        return found[0] if found else None

    def is_by_row(self) -> bool:
        """Does any of them have one for each row?"""
        numbers = [self.temperature, *self.penalties.values()]
        numbers += [number for step in self.steps for number in step.numbers]
        return any(isinstance(number, np.ndarray) for number in numbers) or isinstance(
            self.bias, list
        )

    def replaced(self, changes: Mapping[str, Any]) -> Settings:
        """These, with some given anew."""
        return as_settings({**self.given, **named(changes)})


def named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names of hotmax; one that is given twice is refused."""
    found: dict[str, Any] = {}
    parts: dict[str, dict[int, Any]] = {}
    for name, value in given.items():
        if name in NUMBER_PARTS:
            whole, place = NUMBER_PARTS[name]
            parts.setdefault(whole, {})[place] = value
            continue
        own = ALIASES.get(name, name)
        if own in found:
            raise ValueError(f"{own} must be given once, got it also as {name!r}")
        found[own] = value
    for whole, numbers in parts.items():
        if whole in found:
            raise ValueError(f"{whole} must be given once, got parts of it too")
        if numbers.get(0, 0.0) is None:  # off, whatever the others are
            found[whole] = None
            continue
        if sorted(numbers) != [*range(len(numbers))] or len(numbers) < 2 - (whole == "mirostat"):
            names = " and ".join(name for name, (step, _) in NUMBER_PARTS.items() if step == whole)
            raise ValueError(f"{whole} needs {names}, got {len(numbers)} of them")
        found[whole] = tuple(numbers[place] for place in sorted(numbers))
    return found


def as_settings(given: Mapping[str, Any]) -> Settings:
    """Settings by the names of the field, checked."""
    options = named(given)
    steps = tuple(
        check_step(name, to_numpy(value, name))
        for name, value in options.items()
        if name not in PENALTIES and name != "bias"
    )
    penalties = check_penalties({name: options.get(name) for name in PENALTIES})
    bias = options.get("bias")
    if isinstance(bias, Mapping):
        bias = {int(k) if isinstance(k, str) and k.isdecimal() else k: v for k, v in bias.items()}
        check_biases(bias, 2**63, "bias")
    return Settings(options, check_temperature(options.get("temperature")), steps, penalties, bias)


def check_temperature(given: Any) -> float | Array:
    """0 to inf: below 0 a sampler would draw the least likely."""
    if given is None:
        return 1.0
    temperature = as_temperatures(to_numpy(given))
    if (temperature < 0).any():
        at = int(np.argmax(temperature < 0))
        place = f" in row {at}" if temperature.ndim else ""
        raise ValueError(
            f"temperature must be 0 to inf in a Sampler, got {temperature.flat[at]}{place}"
        )
    temperature = np.abs(temperature)  # -0.0 would turn a row upside down
    return temperature if temperature.ndim else float(temperature)


# --- JSON -------------------------------------------------------------------------------------


def encoded(value: Any) -> Any:
    """A setting for JSON, which has no inf and no arrays."""
    if isinstance(value, Mapping):
        return {str(key): encoded(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [encoded(one) for one in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return encoded(to_numpy(value).tolist())


def decoded(name: str, value: Any) -> Any:
    """A setting from JSON; numbers of a step as a tuple."""
    if isinstance(value, dict):
        return {int(key): decoded(name, one) for key, one in value.items()}
    if isinstance(value, list):
        each = [decoded(name, one) for one in value]
        return tuple(each) if name in STEPS and len(STEPS[name][1]) > 1 else each
    return float(value) if value in ("inf", "-inf") else value
