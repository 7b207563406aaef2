"""Drop-in modules for torch: softmax with a temperature that may be learned.

>>> import torch, hotmax.torch
>>> layer = hotmax.torch.Softmax(dim=-1, temperature=2.0, learnable=True)
>>> [name for name, _ in layer.named_parameters()]
['temperature']
"""

from __future__ import annotations

from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'hotmax.torch needs torch: pip install "hotmax[torch]"', name=error.name
    ) from error

from hotmax._core.arrays import as_temperature
from hotmax._losses.cross_entropy import cross_entropy
from hotmax._softmax.functions import log_softmax, softmax

__all__ = ["CrossEntropyLoss", "LogSoftmax", "Softmax"]


class _WithTemperature(torch.nn.Module):
    def __init__(self, dim: int = -1, temperature: float = 1.0, learnable: bool = False) -> None:
        super().__init__()
        self.dim = dim
        value = float(as_temperature(temperature).reshape(()))
        if learnable:
            self.temperature: torch.nn.Parameter | float = torch.nn.Parameter(torch.tensor(value))
        else:
            self.temperature = value

    def extra_repr(self) -> str:
        value, learnable = self.temperature, False
        if isinstance(value, torch.nn.Parameter):
            value, learnable = value.detach().item(), True
        return f"dim={self.dim}, temperature={value:g}, learnable={learnable}"


class Softmax(_WithTemperature):
    """softmax(x / T) over `dim`, as torch.nn.Softmax, and exact.

    Args:
        dim: The dimension of the classes.
        temperature: T, or where to start from if it is learned.
        learnable: Make the temperature a parameter.

    Example:
        >>> import torch, hotmax.torch
        >>> hotmax.torch.Softmax()(torch.tensor([0.0, 0.0]))
        tensor([0.5000, 0.5000])
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


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """Cross entropy of softmax(x / T), as torch.nn.CrossEntropyLoss, and exact.

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
        self.temperature = temperature

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        soft = target.is_floating_point()
        result: torch.Tensor = cross_entropy(
            input,
            target,
            axis=0 if input.ndim == 1 else 1,
            temperature=self.temperature,
            weight=self.weight,
            label_smoothing=self.label_smoothing,
            ignore_index=None if soft else self.ignore_index,
            reduction=self.reduction,
        )
        return result

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"
