"""Where a request is, and the settings of several as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._kernels.numeric.arithmetic import LARGEST_FLOAT64
from hotmax._sampling.settings import Settings, as_settings
from hotmax._sampling.steps import Program, Step, program


@dataclass
class Request:
    """Where a request is: its seed, how many tokens it has drawn, mirostat's bound, settings."""

    seed: int
    step: int
    mu: float | None
    settings: Settings
    own: dict[str, Any]  # the settings that are not the sampler's


def mu_at_start(settings: Settings) -> float | None:
    step = settings.mirostat
    return None if step is None else min(2.0 * float(step.numbers[0]), LARGEST_FLOAT64)


def joined(found: list[Request]) -> Settings:
    """The settings of several requests, as arrays with one for each row where they differ."""
    first = found[0].settings if found else as_settings({})
    if all(one.settings is first for one in found):
        return first
    names: list[str] = []
    for one in found:
        names += [step.name for step in one.settings.steps if step.name not in names]
    lines = [{step.name: step.numbers for step in one.settings.steps} for one in found]
    steps = []
    for name in names:
        length = max(len(line.get(name, ())) for line in lines)
        table = np.full((len(found), length), np.nan)
        for row, line in enumerate(lines):
            table[row, : len(line.get(name, ()))] = line.get(name, ())
        steps.append(Step(name, tuple(np.ascontiguousarray(column) for column in table.T)))
    if "temperature" not in names:
        steps.append(Step("temperature", ()))
    temperature = np.array([one.settings.temperature for one in found])
    penalties = {
        name: np.array([one.settings.penalties[name] for one in found]) for name in first.penalties
    }
    bias = [one.settings.bias or {} for one in found]
    return Settings({}, temperature, tuple(steps), penalties, bias if any(bias) else None)


def program_of(settings: Settings, own: Settings, order: str | None) -> Program:
    """The steps of requests in the order of the sampler."""
    steps = list(settings.steps)
    if order is None:
        own_order = [step.name for step in own.steps]
        steps = [s for s in steps if s.name in own_order]
        steps.sort(key=lambda step: own_order.index(step.name))
    return program(steps, order)
