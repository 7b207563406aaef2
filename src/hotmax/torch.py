"""Drop-in modules for torch: softmax with a temperature that may be learned, and the losses.

>>> import torch, hotmax.torch
>>> layer = hotmax.torch.Softmax(dim=-1, temperature=2.0, learnable=True)
>>> [name for name, _ in layer.named_parameters()]
['temperature']

The losses take classes along dimension 1, as torch's do, and are float32 under autocast. Inside
torch.compile they are one operator each (`hotmax::loss`), without a graph break; outside of it they
can be differentiated any number of times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'hotmax.torch needs torch: pip install "hotmax[torch]"', name=error.name
    ) from error

import numpy as np

from hotmax._backends.torch_calibrators import module_of
from hotmax._backends.torch_operators import fits_operator, run_loss
from hotmax._core.arrays import as_temperature
from hotmax._core.checks import as_gamma, as_ignored, as_smoothing, check_reduction
from hotmax._losses.cross_entropy import cross_entropy
from hotmax._losses.divergences import distillation_loss
from hotmax._losses.linear import linear_cross_entropy
from hotmax._losses.probability_losses import brier_loss, focal_loss, mae_loss
from hotmax._softmax.functions import log_softmax, softmax

__all__ = [
    "BrierLoss",
    "CrossEntropyLoss",
    "DistillationLoss",
    "FocalLoss",
    "LinearCrossEntropyLoss",
    "LogSoftmax",
    "MAELoss",
    "Softmax",
    "calibrator",
]

Given = tuple[torch.Tensor | None, ...]


class _WithTemperature(torch.nn.Module):
    def __init__(self, dim: int = -1, temperature: float = 1.0, learnable: bool = False) -> None:
        super().__init__()
        self.dim = dim
        value = _one_temperature(temperature)
        if learnable:
            self.temperature: torch.nn.Parameter | float = torch.nn.Parameter(torch.tensor(value))
        else:
            self.temperature = value

    def extra_repr(self) -> str:
        value, learnable = self.temperature, False
        if isinstance(value, torch.nn.Parameter):
            value, learnable = value.detach().item(), True
        return f"dim={self.dim}, temperature={value:g}, learnable={learnable}"

    # A fixed temperature stays a number of Python: a buffer would be rounded by `half()`, and
    # reading it would break the graph of torch.compile. In a state_dict it is a float64 tensor.

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not isinstance(self.temperature, torch.nn.Parameter):
            value = torch.tensor(self.temperature, dtype=torch.float64)
            destination[f"{prefix}temperature"] = value

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        rest = dict(state_dict)
        if not isinstance(self.temperature, torch.nn.Parameter):
            name = f"{prefix}temperature"
            saved = rest.pop(name, self.temperature)
            try:
                self.temperature = _one_temperature(
                    saved.item() if isinstance(saved, torch.Tensor) else saved
                )
            except (TypeError, ValueError, RuntimeError) as error:
                error_msgs.append(f"{name}: {error}")
        super()._load_from_state_dict(
            rest, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def _one_temperature(temperature: float) -> float:
    return float(as_temperature(temperature).reshape(()))


class Softmax(_WithTemperature):
    """softmax(x / T) over `dim`, as torch.nn.Softmax, and exact.

    The temperature is part of the state_dict, fixed or learned: it is saved and loaded with the
    weights. A state_dict without it, such as one written for torch.nn.Softmax, loads as well and
    leaves the temperature as it is.

    Args:
        dim: The dimension of the classes.
        temperature: T, or where to start from if it is learned.
        learnable: Make the temperature a parameter.

    Example:
        >>> import torch, hotmax.torch
        >>> hotmax.torch.Softmax()(torch.tensor([0.0, 0.0]))
        tensor([0.5000, 0.5000])
        >>> hotmax.torch.Softmax(temperature=2.5).state_dict()["temperature"].item()
        2.5
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = softmax(x, axis=self.dim, temperature=self.temperature)
        return result


class LogSoftmax(_WithTemperature):
    """log softmax(x / T) over `dim`, as torch.nn.LogSoftmax, with no digit lost near 0.

    Args:
        dim, temperature, learnable: As in `Softmax`.

    Example:
        >>> import torch, hotmax.torch
        >>> hotmax.torch.LogSoftmax()(torch.tensor([0.0, -40.0]))
        tensor([-4.2484e-18, -4.0000e+01])
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = log_softmax(x, axis=self.dim, temperature=self.temperature)
        return result


def _evaluate(
    function: Any,
    given: dict[str, torch.Tensor | None],
    numbers: dict[str, float],
    ignore_index: int | None,
    reduction: str,
    axis: int | None,
) -> torch.Tensor:
    """A loss: by the operator while torch compiles, else by the function.

    Under autocast all floats are float32, and so is the loss, as in torch.nn.functional.
    """
    first = next(iter(given.values()))
    assert first is not None
    if torch.is_autocast_enabled(first.device.type):
        given = {
            name: t.float() if t is not None and t.is_floating_point() else t
            for name, t in given.items()
        }
    if torch.compiler.is_compiling():
        tensors, values = (*given.values(),), [*numbers.values()]
        if fits_operator(tensors):
            return run_loss(
                function.__name__, tensors, values, -1 if axis is None else axis, ignore_index,
                reduction,
            )  # fmt: skip
    options: dict[str, Any] = {**given, **numbers, "reduction": reduction}
    if axis is not None:
        options["axis"] = axis
    if function is not distillation_loss:
        options["ignore_index"] = ignore_index
    result: torch.Tensor = function(**options)
    return result


def _class_dimension(input: torch.Tensor) -> int:
    return 0 if input.ndim == 1 else 1


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """Cross entropy of softmax(x / T), as torch.nn.CrossEntropyLoss, and exact.

    Classes lie along dimension 1 of (N, C, d1, ...), whatever the sizes of the others.

    Args:
        weight, size_average, ignore_index, reduce, reduction, label_smoothing: As in
            torch.nn.CrossEntropyLoss. A class at -inf takes no part of the smoothing, and the mean
            over nothing (all labels ignored) is 0: torch gives inf and nan. Unlike torch's, class
            weights below 0 are refused, and probabilities that do not add up to 1.
        temperature: T.

    Example:
        >>> import torch, hotmax.torch
        >>> loss = hotmax.torch.CrossEntropyLoss()
        >>> loss(torch.tensor([[0.0, -40.0]], dtype=torch.float64), torch.tensor([0])).item()
        4.248354255291589e-18
    """

    def __init__(self, *args: Any, temperature: float = 1.0, **options: Any) -> None:
        super().__init__(*args, **options)
        self.temperature = _one_temperature(temperature)

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        soft = target.is_floating_point()
        return _evaluate(
            cross_entropy,
            {"logits": input, "targets": target, "weight": self.weight},
            {"temperature": self.temperature, "label_smoothing": self.label_smoothing},
            None if soft else self.ignore_index,
            self.reduction,
            _class_dimension(input),
        )

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


class _Loss(torch.nn.Module):
    """What losses of labels share."""

    def __init__(self, temperature: float, ignore_index: int | None, reduction: str) -> None:
        super().__init__()
        self.temperature = _one_temperature(temperature)
        self.ignore_index = None if ignore_index is None else as_ignored(ignore_index)
        check_reduction(reduction)
        self.reduction = reduction

    def extra_repr(self) -> str:
        return f"temperature={self.temperature:g}, reduction={self.reduction!r}"


class FocalLoss(_Loss):
    """-(1 - p)^gamma log p of the right class, as `hotmax.focal_loss`; classes along dimension 1.

    Args:
        gamma: At least 0; 0 is cross entropy.
        weight: A factor for each class, or None.
        temperature, ignore_index, reduction: As in `CrossEntropyLoss`.

    Example:
        >>> import torch, hotmax.torch
        >>> hotmax.torch.FocalLoss(gamma=2.0)(torch.zeros(1, 2), torch.tensor([1]))
        tensor(0.1733)
    """

    weight: torch.Tensor | None

    def __init__(
        self,
        gamma: float = 2.0,
        *,
        weight: torch.Tensor | None = None,
        temperature: float = 1.0,
        ignore_index: int | None = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(temperature, ignore_index, reduction)
        self.gamma = as_gamma(gamma)
        self.register_buffer("weight", weight)

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return _evaluate(
            focal_loss,
            {"logits": input, "targets": target, "weight": self.weight},
            {"temperature": self.temperature, "gamma": self.gamma},
            self.ignore_index,
            self.reduction,
            _class_dimension(input),
        )


class BrierLoss(_Loss):
    """The squared distance of p from the label, as `hotmax.brier_loss`; classes along dimension 1.

    Args:
        temperature, ignore_index, reduction: As in `CrossEntropyLoss`.

    Example:
        >>> import torch, hotmax.torch
        >>> hotmax.torch.BrierLoss()(torch.zeros(1, 2), torch.tensor([1]))
        tensor(0.5000)
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        ignore_index: int | None = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(temperature, ignore_index, reduction)

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return _evaluate(
            brier_loss,
            {"logits": input, "targets": target},
            {"temperature": self.temperature},
            self.ignore_index,
            self.reduction,
            _class_dimension(input),
        )


class MAELoss(BrierLoss):
    """1 - p of the right class, as `hotmax.mae_loss`; classes along dimension 1.

    Args:
        temperature, ignore_index, reduction: As in `CrossEntropyLoss`.

    Example:
        >>> import torch, hotmax.torch
        >>> hotmax.torch.MAELoss()(torch.zeros(1, 4), torch.tensor([1]))
        tensor(0.7500)
    """

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return _evaluate(
            mae_loss,
            {"logits": input, "targets": target},
            {"temperature": self.temperature},
            self.ignore_index,
            self.reduction,
            _class_dimension(input),
        )


class DistillationLoss(_Loss):
    """T^2 KL(teacher / T, student / T), as `hotmax.distillation_loss`; classes along dimension 1.

    Args:
        temperature: T.
        reduction: "mean" (over rows), "sum" or "none".

    Example:
        >>> import torch, hotmax.torch
        >>> loss = hotmax.torch.DistillationLoss(temperature=4.0)
        >>> loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 1.0]]))
        tensor(0.4974)
    """

    def __init__(self, temperature: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(temperature, None, reduction)

    def forward(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        return _evaluate(
            distillation_loss,
            {"student": student, "teacher": teacher.detach()},
            {"temperature": self.temperature},
            None,
            self.reduction,
            _class_dimension(student),
        )


class LinearCrossEntropyLoss(_Loss):
    """Cross entropy of hidden @ weight.T + bias without all its logits at once.

    As `hotmax.linear_cross_entropy`: hand over the hidden states and the weight of the last layer.

    Args:
        temperature, ignore_index, reduction, label_smoothing: As in `CrossEntropyLoss`.

    Example:
        >>> import torch, hotmax.torch
        >>> loss = hotmax.torch.LinearCrossEntropyLoss()
        >>> loss(torch.zeros(3, 5), torch.zeros(4, 5), torch.tensor([0, 1, -100]))
        tensor(1.3863)
    """

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        temperature: float = 1.0,
        ignore_index: int | None = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(temperature, ignore_index, reduction)
        self.label_smoothing = as_smoothing(label_smoothing)

    def forward(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        target: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return _evaluate(
            linear_cross_entropy,
            {"hidden": hidden, "targets": target, "weight": weight, "bias": bias},
            {"temperature": self.temperature, "label_smoothing": self.label_smoothing},
            self.ignore_index,
            self.reduction,
            None,
        )


AGREEMENT = 1e-9  # of a module in float64 with the calibrator that it was made of


def calibrator(fitted: Any, *, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    """A fitted calibrator as a module for serving: logits in, calibrated probabilities out.

    It consists of plain operations of torch, so that torch.export and torch.onnx take it, alone or
    behind a model in a `torch.nn.Sequential`. When it is made, its results are compared with the
    calibrator's. Rows for which the calibrator raises a ValueError (nan, +inf, nothing but -inf)
    give nan here. Another number of classes is a ValueError.

    Args:
        fitted: A Calibrator or TemperatureScaling, fitted or loaded.
        dtype: In which it computes; probabilities come back in the type of the logits, and of
            integers in this one.

    Raises:
        ValueError: If the method has no formula in torch.

    Example:
        >>> import torch, hotmax as hm, hotmax.torch
        >>> logits = [[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]]
        >>> scaling = hm.calibration.TemperatureScaling().fit(logits, [0, 0, 1, 1])
        >>> hotmax.torch.calibrator(scaling)(torch.tensor([[4.0, 0.0]]))
        tensor([[0.7500, 0.2500]])
    """
    if not hasattr(fitted, "parameters_"):
        raise TypeError(
            f"fitted must be a fitted Calibrator or TemperatureScaling, got {type(fitted).__name__}"
        )
    method, classes = fitted._options()[0], int(fitted.n_features_in_)
    made = [
        module_of(method, fitted.parameters_, fitted.input, classes, kind)
        for kind in (torch.float64, dtype)
    ]
    x = np.random.default_rng(0).normal(size=(64, classes)) * np.geomspace(0.1, 30.0, 64)[:, None]
    x = np.asarray(softmax(x)) if fitted.input == "probabilities" else x
    wanted, found = fitted.predict_proba(x), made[0](torch.as_tensor(x)).numpy()
    if not np.allclose(found, wanted, rtol=AGREEMENT, atol=AGREEMENT):
        raise ValueError(f"the method {method!r} has no formula in torch that agrees with it")
    return made[1].eval()
