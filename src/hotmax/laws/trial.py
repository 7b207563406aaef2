"""One trial of a law: calls of a subject on an input, what came back, and the claim about it.

What is evaluated is what is printed: each call and each claim is also a line of code, and the lines
of a claim that is false are the counterexample.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax.laws.libraries import numpy_dtype
from hotmax.laws.subjects import Subject, spelling

SHOWN_NUMBERS = 6  # numbers of a row on one line
AXES = (-1, 0, 1, -2)


@dataclass(frozen=True)
class Case:
    """An input: a row of numbers that its type holds, and what else the law needs."""

    x: tuple[float, ...]
    dtype: str
    extra: Mapping[str, float] = field(default_factory=dict)

    def __getattr__(self, name: str) -> float:
        try:
            value: float = self.__dict__["extra"][name]
        except KeyError:
            raise AttributeError(name) from None
        return value


class Broken(Exception):
    """A claim is false, or a call raised."""


class Refused(Exception):
    """The subject does not take this type."""


@dataclass(frozen=True)
class Counterexample:
    """An input for which a law does not hold.

    Args:
        x: The row of logits.
        dtype: Their type.
        arguments: What else the law was tried with, such as the temperature.
        summary: What came back, on one line.
        code: Lines to paste into a shell; the last one fails.
    """

    x: tuple[float, ...]
    dtype: str
    arguments: Mapping[str, float]
    summary: str
    code: str

    def __str__(self) -> str:
        return self.code


class Trial:
    """What a law's check is given: it calls, it names values, and it claims."""

    def __init__(self, subject: Subject, axis: int, refusable: bool = False) -> None:
        self.subject = subject
        self.axis = axis
        self.refusable = refusable
        self.values: dict[str, Any] = {"np": np, "math": math}
        self.steps: list[tuple[Any, ...]] = []
        self.error: str | None = None
        self.false: str | None = None
        self.dtype = ""  # of the last result
        self.worst = 0.0

    # --- what a check does -------------------------------------------------------------------

    def call(
        self,
        name: str,
        function: str,
        x: Sequence[float] | Array | str,
        dtype: str,
        *,
        of: str = "x",
        temperature: float | None = None,
        where: Sequence[bool] | None = None,
        row: int | None = None,
        may_raise: bool = False,
    ) -> bool:
        """`name` = function(x), as float64; of a batch of rows, the one asked for, or all.

        x is a row, a batch of rows, or an expression of values that were computed.
        True if it came back; only with `may_raise` can it be otherwise.
        """
        values = eval(_compiled(x), self.values) if isinstance(x, str) else x
        array = self._laid(np.array(values, numpy_dtype(dtype)))
        native = self.subject.arrays.make(array)
        self.values[of] = native
        options: dict[str, Any] = {}
        if self.subject.axis:
            options[self.subject.axis] = self.axis
        if where is not None:
            mask = self._laid(np.array(where, np.bool_))
            options[str(self.subject.where)] = self.subject.arrays.make(mask)
        written = self._written(x, array) if isinstance(x, str) else None
        self.steps.append(("call", name, function, of, array, written, temperature, where, row))
        try:
            operand = native
            if temperature is not None and self.subject.temperature:
                options[self.subject.temperature] = temperature
            elif temperature is not None:
                operand = native / temperature
            result = self.subject.function(function)(operand, **options)
            self._keep(name, result, row)
        except Exception as error:
            if may_raise:
                return False
            self._raised(error)
        if function != "logsumexp" and row is None:
            self.claim(f"{name}.shape == {np.shape(values)}")
        return True

    def differentiate(
        self, name: str, function: str, x: Sequence[float], dtype: str, label: int | None = None
    ) -> None:
        """`name` = the derivative of one row, as float64."""
        array = np.array(x, numpy_dtype(dtype))
        native = self.subject.arrays.make(array)
        self.steps.append(("differentiate", name, function, array, label))
        arguments = (native,) if label is None else (native, label)
        try:
            self._keep(name, self.subject.function(function)(*arguments), None)
        except Exception as error:
            self._raised(error)

    def let(self, name: str, value: Any, remark: str = "") -> None:
        """A value that claims may name: a number, a list or a float64 array."""
        self.values[name] = np.array(value) if isinstance(value, list) else value
        self.steps.append(("let", name, value, remark))

    def compute(self, name: str, expression: str) -> None:
        """A value that claims and calls may name, from an expression."""
        self.values[name] = eval(_compiled(expression), self.values)
        self.steps.append(("compute", name, expression))

    def look(self, name: str, of: str = "x") -> None:
        """`name` = what an input holds now, as float64."""
        self.values[name] = self.subject.arrays.back(self.values[of]).ravel()
        self.steps.append(("look", name, of))

    def claim(self, expression: str) -> None:
        """What must be true of the values."""
        try:
            if eval(_compiled(expression), self.values):
                return
        except Exception as error:  # such as shapes that do not fit
            self.error = f"{type(error).__name__}: {error}"
        self.false = expression
        raise Broken

    def measure(self, error: float) -> None:
        self.worst = max(self.worst, error)

    # --- how ---------------------------------------------------------------------------------

    def _laid(self, array: Array) -> Array:
        """The classes along the axis: a row in one dimension if it can be, a batch in two."""
        if array.ndim == 1 and self.axis in (1, -2):
            array = array[np.newaxis]
        return array.T.copy() if array.ndim == 2 and self.axis in (0, -2) else array

    def _written(self, expression: str, array: Array) -> str:
        transposed = f"{expression}.T.copy()" if self.axis in (0, -2) else expression
        return self.subject.arrays.write.format(values=transposed, dtype=array.dtype.name)

    def _keep(self, name: str, result: Any, row: int | None) -> None:
        self.dtype = str(getattr(result, "dtype", "float64")).rpartition(".")[2]
        values = self.subject.arrays.back(result)
        if row is not None:
            values = values[:, row] if self.axis in (0, -2) else values[row]
        elif self.axis in (1, -2) and 1 in values.shape:
            values = values.ravel()
        self.values[name] = values

    def _raised(self, error: Exception) -> None:
        if self.refusable:
            raise Refused(f"{type(error).__name__}: {_first_line(error)}") from error
        self.error = f"raises {type(error).__name__}: {_first_line(error)}"
        raise Broken from error

    # --- the counterexample -------------------------------------------------------------------

    def counterexample(self, case: Case) -> Counterexample:
        return Counterexample(case.x, case.dtype, dict(case.extra), self.summary(), self.code())

    def summary(self) -> str:
        said, inputs = [], set()
        for kind, name, *rest in self.steps:
            if kind == "call":
                _, of, array, written, temperature, *_ = rest
                if of not in inputs and not written:
                    said.append(f"{of} = {_short(array)} ({array.dtype.name})")
                    inputs.add(of)
                if temperature is not None:
                    said.append(f"T = {temperature!r}")
            elif kind == "differentiate":
                said.append(f"x = {_short(rest[1])} ({rest[1].dtype.name})")
            elif kind == "compute":
                said.append(f"{name} = {rest[0]}")
                continue
            if name in self.values and (kind != "let" or np.ndim(self.values[name])):
                said.append(f"{name} = {_short(self.values[name])}")
        if self.error:
            said.append(self.error)
        return ", ".join(dict.fromkeys(said))

    def code(self) -> str:
        library = self.subject.arrays
        heads = ["import numpy as np", *([library.imports] if library.imports else [])]
        sources: list[str] = []
        body: list[str] = []
        names: dict[str, str] = {}
        for _, _, function, *_ in (s for s in self.steps if s[0] in ("call", "differentiate")):
            if function not in names:
                source, names[function] = spelling(getattr(self.subject, function), function)
                (heads if source.startswith("import ") else sources).append(source.rstrip())
        for step in self.steps:
            body += self._lines(step, names)
        if self.false:
            results = [s[1] for s in self.steps if s[0] in ("call", "differentiate", "look")]
            shown = results[0] if len(results) == 1 else f"({', '.join(results)})"
            body.append(f"assert {self.false}, {shown}")
        text = "\n".join(body)
        if "math." in text:
            heads.insert(0, "import math")
        if used := [name for name in ("inf", "nan") if re.search(rf"(?<![\w.]){name}\b", text)]:
            heads.insert(0, f"from math import {', '.join(used)}")
        if "bfloat16" in text and "torch.bfloat16" not in text:
            heads.append("import ml_dtypes")
        if library.name == "jax" and "64'" in text:
            heads.append('jax.config.update("jax_enable_x64", True)')
        parts = ["\n".join(dict.fromkeys(heads)), *dict.fromkeys(sources), text]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _lines(self, step: tuple[Any, ...], names: Mapping[str, str]) -> list[str]:
        library = self.subject.arrays
        kind, name, *rest = step
        if kind == "let":
            value, remark = rest
            text = f"np.array({value.tolist()})" if isinstance(value, np.ndarray) else repr(value)
            text = f"np.array({text})" if isinstance(value, list) else text
            return [f"{name} = {text}{f'  # {remark}' if remark else ''}"]
        if kind == "compute":
            return [f"{name} = {rest[0]}"]
        if kind == "look":
            call = library.write_back.format(call=rest[0])
            return [f"{name} = {call}.ravel()"]
        if kind == "differentiate":
            function, array, label = rest
            call = f"{names[function]}(x{'' if label is None else f', {label}'})"
            return [
                f"x = {library.written(array)}",
                f"{name} = {library.write_back.format(call=call)}",
            ]
        function, of, array, written, temperature, where, row = rest
        arguments = [of]
        if self.subject.axis:
            arguments.append(f"{self.subject.axis}={self.axis}")
        if temperature is not None and self.subject.temperature:
            arguments.append(f"{self.subject.temperature}={temperature!r}")
        elif temperature is not None:
            arguments[0] = f"{of} / {temperature!r}"
        if where is not None:
            mask = self._laid(np.array(where, np.bool_))
            arguments.append(f"{self.subject.where}={library.written(mask)}")
        call = library.write_back.format(call=f"{names[function]}({', '.join(arguments)})")
        if row is not None:
            call += f"[:, {row}]" if self.axis in (0, -2) else f"[{row}]"
        elif self.axis in (1, -2):
            call += ".ravel()"
        return [f"{of} = {written or library.written(array)}", f"{name} = {call}"]


_CODE: dict[str, CodeType] = {}


def _compiled(expression: str) -> CodeType:
    if expression not in _CODE:
        _CODE[expression] = compile(expression, expression, "eval")
    return _CODE[expression]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _short(values: Any) -> str:
    """A row with its digits, its middle left out if it is long."""
    array = np.asarray(values)
    if array.ndim == 0:
        return repr(array.item())
    if array.ndim == 2:
        rows = [_short(row) for row in array[:2]]
        return f"[{', '.join(rows)}{', ...' if len(array) > 2 else ''}]"
    exact = array.astype(np.float64) if array.dtype.name == "bfloat16" else array
    numbers = [repr(v) for v in exact[:SHOWN_NUMBERS].tolist()]
    if array.size > SHOWN_NUMBERS:
        numbers.append(f"... ({array.size} in all)")
    return f"[{', '.join(numbers)}]"
