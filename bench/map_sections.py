"""Beyond the grid: single figures of the map, and its sections on masks, half precision and others.

A section has a title, what PyTorch is asked for in the same place, and its cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch
from map_cells import Cell, Names, logits, shared_tensor

F = torch.nn.functional

# From one row to millions of entries, few and many classes.
SHAPES = ((1, 100), (64, 1000), (512, 100), (32_768, 32), (1000, 1000), (64, 32_000))


@dataclass
class Section:
    key: str
    title: str
    cells: Sequence[Cell]


def cell(name: str, hotmax: str, theirs: str, make: object, shape: Sequence[int], **more) -> Cell:
    rows, classes = shape[0], int(np.prod(shape[1:]))
    statements = {"hotmax": hotmax, "torch": theirs}
    return Cell(name, statements, make, rows=rows, classes=classes, **more)


def shown(shape: Sequence[int]) -> str:
    return f"{shape[0]} x {shape[1]}"


def plain(shape: Sequence[int], dtype: object = "float32") -> Names:
    kind = "float64" if dtype == "float64" else "float32"
    x = logits(*shape, kind).astype(dtype, copy=False)
    return {"x": x, "t": shared_tensor(x)}


def masks() -> list[Cell]:
    def make(shape: Sequence[int]) -> Names:
        mask = np.random.default_rng(1).random(shape) < 0.7
        mask[:, 0] = True
        return plain(shape) | {"mask": mask, "hidden": torch.from_numpy(~mask)}

    return [
        cell(
            f"{function} {shown(shape)}",
            f"hm.{function}(x, where=mask)",
            f"torch.{function}(t.masked_fill(hidden, -torch.inf), -1)",
            lambda shape=shape: make(shape),
            shape,
        )
        for function in ("softmax", "logsumexp")
        for shape in SHAPES
    ]


def temperatures() -> list[Cell]:
    def make(shape: Sequence[int]) -> Names:
        T = np.random.default_rng(1).uniform(0.5, 2, (shape[0], 1)).astype(np.float32)
        return plain(shape) | {"T": T, "T_torch": torch.from_numpy(T)}

    return [
        cell(
            f"softmax {shown(shape)}",
            "hm.softmax(x, temperature=T)",
            "torch.softmax(t / T_torch, -1)",
            lambda shape=shape: make(shape),
            shape,
        )
        for shape in SHAPES
    ]


def first_axis() -> list[Cell]:
    shapes = ((100, 64), (1000, 64), (10, 10_000), (1000, 1000), (2, 1_000_000), (32_000, 64))
    return [
        cell(
            f"{function} {shown(shape)}",
            f"hm.{function}(x, axis=0)",
            f"torch.{function}(t, 0)",
            lambda shape=shape: plain(shape),
            shape,
        )
        for function in ("softmax", "logsumexp")
        for shape in shapes
    ]


def half_precision() -> list[Cell]:
    # Torch rounds sums in bfloat16 too: the results differ by some units of 2**-8.
    return [
        cell(
            f"softmax {np.dtype(dtype).name} {shown(shape)}",
            "hm.softmax(x)",
            "torch.softmax(t, -1)",
            lambda shape=shape, dtype=dtype: plain(shape, dtype),
            shape,
            tolerance=0.02,
        )
        for dtype in (np.float16, ml_dtypes.bfloat16)
        for shape in SHAPES
    ]


def torch_entropy(t: torch.Tensor) -> torch.Tensor:
    log_p = torch.log_softmax(t, -1)
    return -(log_p.exp() * log_p).sum(-1)


def entropies() -> list[Cell]:
    return [
        cell(
            f"entropy {shown(shape)}",
            "hm.entropy(x)",
            "entropy(t)",
            lambda shape=shape: plain(shape) | {"entropy": torch_entropy},
            shape,
        )
        for shape in SHAPES
    ]


def loss_and_gradient(t: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = F.cross_entropy(t, labels)
    return loss, torch.autograd.grad(loss, t)[0]


def cross_entropies() -> list[Cell]:
    def make(shape: Sequence[int]) -> Names:
        y = np.random.default_rng(1).integers(0, shape[1], shape[0])
        names = plain(shape) | {"y": y, "labels": torch.from_numpy(y), "F": F}
        names["leaf"] = torch.from_numpy(names["x"]).requires_grad_()
        return names | {"loss_and_gradient": loss_and_gradient}

    def value(shape: Sequence[int]) -> Cell:
        return cell(
            f"cross_entropy {shown(shape)}",
            "hm.cross_entropy(x, y)",
            "F.cross_entropy(t, labels)",
            lambda: make(shape),
            shape,
        )

    def with_gradient(shape: Sequence[int]) -> Cell:
        return cell(
            f"cross_entropy with gradient {shown(shape)}",
            "hm.cross_entropy(x, y, return_grad=True)",
            "loss_and_gradient(leaf, labels)",
            lambda: make(shape),
            shape,
            inference=False,
        )

    return [kind(shape) for kind in (value, with_gradient) for shape in SHAPES]


def forward(shape: Sequence[int]) -> Cell:
    return cell(
        f"softmax of a tensor {shown(shape)}, forward",
        "hm.softmax(t)",
        "torch.softmax(t, -1)",
        lambda: plain(shape),
        shape,
    )


def forward_and_backward(shape: Sequence[int]) -> Cell:
    def make() -> Names:
        t = torch.from_numpy(logits(*shape)).requires_grad_()
        return {"t": t, "g": torch.randn(shape, generator=torch.Generator().manual_seed(1))}

    return cell(
        f"softmax of a tensor {shown(shape)}, forward and backward",
        "torch.autograd.grad(hm.softmax(t), t, g)",
        "torch.autograd.grad(torch.softmax(t, -1), t, g)",
        make,
        shape,
        inference=False,
    )


def tensors() -> list[Cell]:
    shapes = ((1, 10), *SHAPES[1:])
    return [kind(shape) for kind in (forward, forward_and_backward) for shape in shapes]


def one_query(heads: int, keys: int) -> Cell:
    def make() -> Names:
        rng = np.random.default_rng(0)
        q, k, v = (rng.standard_normal((1, heads, n, 64), np.float32) for n in (1, keys, keys))
        arrays = {"q": q, "k": k, "v": v}
        return arrays | {f"t{name}": torch.from_numpy(a) for name, a in arrays.items()} | {"F": F}

    return cell(
        f"attention, 1 query, {keys} keys, {heads} heads",
        "hm.attention(q, k, v)",
        "F.scaled_dot_product_attention(tq, tk, tv)",
        make,
        (heads, keys),
    )


def attentions() -> list[Cell]:
    sizes = ((8, 64), (8, 512), (8, 4096), (32, 512), (32, 4096), (8, 16_384))
    return [one_query(*size) for size in sizes]


def sections() -> list[Section]:
    return [
        Section("where", "where masks; PyTorch: masked_fill, then the function", masks()),
        Section(
            "temperatures",
            "A temperature for each row; PyTorch: x / t, then softmax",
            temperatures(),
        ),
        Section("axis0", "Axis 0", first_axis()),
        Section("half", "float16 and bfloat16", half_precision()),
        Section(
            "entropy", "Entropy; PyTorch: -sum of p log p, by log_softmax and exp", entropies()
        ),
        Section(
            "cross_entropy",
            "cross_entropy; with gradient PyTorch: forward and autograd.grad",
            cross_entropies(),
        ),
        Section("torch", "PyTorch tensors, given to both", tensors()),
        Section(
            "attention",
            "Attention with one query, 64 features; PyTorch: scaled_dot_product_attention",
            attentions(),
        ),
    ]


def single_figures() -> dict[str, Cell]:
    """What the summary names: measured apart from the grid, at more length."""
    x = (1, 100)
    call = cell("softmax 1 x 100", "hm.softmax(x)", "torch.softmax(t, -1)", lambda: plain(x), x)
    return {
        "one call, 1 x 100 float32": call,
        "a tensor of 1 x 10, forward": forward((1, 10)),
        "a tensor of 1 x 10, forward and backward": forward_and_backward((1, 10)),
        "one query, 4096 keys, 8 heads": one_query(8, 4096),
    }
