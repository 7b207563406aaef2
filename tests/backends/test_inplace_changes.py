"""Torch: what changes in place between forward and backward never corrupts a gradient.

Every function with gradients is run with one of its inputs or outputs changed in place. The
gradient is that of an unchanged run, or torch raises its own error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from arrays import DIRECT
from optional import library, torch

import hotmax as hm
from hotmax._attention.backward import AttentionGradients
from hotmax._backends.operation import OPERATIONS
from hotmax._losses import generic_linear

_torch_tensors = library("hotmax._backends.torch_tensors")
pytestmark = pytest.mark.torch
NAMES = [name for name, operation in OPERATIONS.items() if operation.works["torch"] == "gradients"]
RNG = np.random.default_rng(0)
MASK = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [1, 0, 1, 1]], bool)
SCORES = (3, 5)  # queries and keys

# Numbers for each parameter that takes an array, in float64: torch then computes where it stands.
ARRAYS = {
    **{name: RNG.normal(size=(3, 4)) for name in ("x", "logits", "logits_p", "student")},
    **{name: RNG.normal(size=(3, 4)) for name in ("logits_q", "teacher", "tangent", "cotangent")},
    "log_probabilities": hm.log_softmax(RNG.normal(size=(3, 4))),
    "targets": np.array([0, 1, 3]),
    "temperature": RNG.uniform(0.5, 2.0, (3, 1)),
    "where": MASK,
    "weight": RNG.uniform(0.5, 2.0, 4),
    "weights": RNG.uniform(0.5, 2.0, (3, 4)),
    "segment_ids": np.array([0, 1, 0, 2]),
    "q": RNG.normal(size=(3, 4)),
    "k": RNG.normal(size=(5, 4)),
    "v": RNG.normal(size=(5, 2)),
    "gradient": RNG.normal(size=(3, 2)),
    "sink": RNG.normal(size=(3, 1)),
    "bias": RNG.normal(size=SCORES),
    "hidden": RNG.normal(size=(3, 4)),
}
SEEN = {"where": RNG.random(SCORES) < 0.7}
OWN = {
    **dict.fromkeys(("attention", "attention_weights", "attention_vjp"), SEEN),
    "linear_cross_entropy": {
        "weight": RNG.normal(size=(6, 4)),
        "bias": RNG.normal(size=6),
        "temperature": np.array(0.7),
    },
}
NO_ARRAYS = {
    *("axis", "reduction", "label_smoothing", "ignore_index", "gamma", "causal", "scale"),
    *("keepdims", "out", "hard", "seed", "num_segments", "return_sign"),
    *("return_grad", "return_logsumexp"),
}
# Options with results or derivatives of their own; each is tried by itself.
OPTIONS = {"return_grad": True, "reduction": "none", "return_logsumexp": True, "hard": True}
SOFT = {"targets": hm.softmax(RNG.normal(size=(3, 4)), where=MASK)}


def parameters_of(name: str) -> list[str]:
    return list(inspect.signature(getattr(hm, name)).parameters)


def arrays_of(name: str) -> dict[str, np.ndarray]:
    """All the arrays that a function takes."""
    numbers = {**ARRAYS, **OWN.get(name, {})}
    return {p: numbers[p] for p in parameters_of(name) if p not in NO_ARRAYS}


@dataclass(frozen=True)
class Case:
    """A function, its arrays as tensors or as something else, and which of them have gradients."""

    function: Callable[..., Any]
    arrays: dict[str, np.ndarray]
    options: dict[str, Any]
    learned: tuple[str, ...]
    make: Callable[[np.ndarray], Any] = lambda a: torch.tensor(a)  # of arrays beside the first
    generic: bool = False

    def inputs(self) -> dict[str, Any]:
        first, *rest = self.arrays
        given = {first: torch.tensor(self.arrays[first])}
        given |= {name: self.make(self.arrays[name].copy()) for name in rest}
        for name in self.learned:
            given[name].requires_grad_()
        return given

    def gradients(self, order: int, change: str = "", stage: int = 1) -> list[torch.Tensor]:
        """Those of the first order, or of the first and second.

        The thing named by `change` is changed before the backward pass of that stage.
        """
        inputs = self.inputs()
        with mock.patch(DIRECT, return_value=False) if self.generic else nullcontext():
            results = tensors_of(self.function(**inputs, **self.options))
            things = inputs | {f"output {i}": result for i, result in enumerate(results)}
            if change and stage == 1:
                alter(things[change])
            points = [inputs[name] for name in self.learned]
            found = derivatives(results, points, order > 1)
            values = [f.detach().clone() for f in found]
            if change and stage == 2:
                things |= {f"gradient {i}": f for i, f in enumerate(found)}
                alter(things[change])
            return values + (derivatives(found, points, False) if order > 1 else [])

    def outputs(self) -> list[str]:
        return [f"output {i}" for i in range(len(tensors_of(self())))]

    def __call__(self) -> Any:
        return self.function(**self.inputs(), **self.options)


def tensors_of(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    parts = vars(result).values() if isinstance(result, AttentionGradients) else result
    return [tensor for part in parts if part is not None for tensor in tensors_of(part)]


def derivatives(results: Any, points: Any, create: bool) -> list[torch.Tensor]:
    """With weights that differ, so that no sum of probabilities hides a fault."""
    results = [r for r in results if r.requires_grad]
    if not results:
        return []
    weights = [torch.linspace(-1, 2, r.numel(), dtype=r.dtype).reshape(r.shape) for r in results]
    found = torch.autograd.grad(results, points, weights, create_graph=create, allow_unused=True)
    return [f for f in found if f is not None]


def alter(thing: Any) -> None:
    """Change an array in place to another that is as good."""
    if isinstance(thing, list):
        thing.reverse()
        for part in thing:
            if isinstance(part, list):
                alter(part)
        return
    array = thing.detach().numpy() if isinstance(thing, torch.Tensor) else thing
    before = array.copy()
    other = ~array if array.dtype == bool else np.flip(array)
    if np.array_equal(array, other):
        other = np.asarray(2 * array + 1)
    if isinstance(thing, torch.Tensor):
        thing.detach().copy_(torch.from_numpy(other.copy()))  # torch counts this as a change
    else:
        array[...] = other.copy()
    assert not np.array_equal(before, array)


def unless_refused(call: Callable[[], Any]) -> Any:
    """What a call returns, or None if torch refuses it because of a change in place."""
    try:
        return call()
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return None


def check(case: Case, changes: list[str], outputs: bool = True) -> int:
    """How many of the changes were refused by torch."""
    wanted = {order: case.gradients(order) for order in (1, 2)}
    assert any(part.abs().max() > 0 for part in wanted[1]) or case.function is hm.hardmax
    changes = changes + (case.outputs() if outputs else [])
    places = [(order, stage, name) for name in changes for order, stage in ((1, 1), (2, 1), (2, 2))]
    if outputs:
        places += [(2, 2, f"gradient {i}") for i in range(len(wanted[1]))]
    refused = 0
    for order, stage, name in places:
        got = unless_refused(lambda: case.gradients(order, name, stage))  # noqa: B023
        if got is None:
            refused += 1
            continue
        for ours, truth in zip(got, wanted[order], strict=True):
            message = f"{name} changed before backward pass {stage} of {order}"
            torch.testing.assert_close(
                ours,
                truth,
                rtol=1e-12,
                atol=1e-12,
                msg=lambda m, message=message: f"{message}: {m}",
            )
    return refused


def options_of(name: str) -> list[dict[str, Any]]:
    always = {"seed": 0} if "seed" in parameters_of(name) else {}
    own = [{option: OPTIONS[option]} for option in parameters_of(name) if option in OPTIONS]
    return [always, *(always | one for one in own)]


def without_options(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    needed = [p.name for p in inspect.signature(getattr(hm, name)).parameters.values()
              if p.default is p.empty]  # fmt: skip
    return {name: arrays[name] for name in needed}


every = pytest.mark.parametrize("name", NAMES)


@every
def test_tensors(name):
    """The first argument is learned: losses and attention take the kernels, with their gradient."""
    function, arrays = getattr(hm, name), arrays_of(name)
    first = (next(iter(arrays)),)
    usual, *others = options_of(name)
    check(Case(function, arrays, usual, first), list(arrays))
    for options in others:
        check(Case(function, arrays, options, first), [])
    few = without_options(arrays, name)
    check(Case(function, few, usual, first), list(first))
    if name == "cross_entropy":
        check(Case(function, arrays | SOFT, {}, first), list(arrays))


@every
def test_tensors_that_are_all_learned(name):
    function, arrays = getattr(hm, name), arrays_of(name)
    learned = tuple(n for n, a in arrays.items() if a.dtype.kind == "f")
    check(Case(function, arrays, options_of(name)[0], learned), list(arrays))


@every
def test_where_the_kernels_do_not_go(name):
    """As on another device."""
    function, arrays = getattr(hm, name), arrays_of(name)
    first = (next(iter(arrays)),)
    check(Case(function, arrays, options_of(name)[0], first, generic=True), list(arrays))


@every
@pytest.mark.parametrize(
    ("make", "generic"), [(lambda a: a, False), (lambda a: a, True), (np.ndarray.tolist, False)],
    ids=["NumPy", "NumPy, generic", "lists"],
)  # fmt: skip
def test_arrays_beside_a_tensor(name, make, generic):
    """torch cannot count the changes of these: what the gradient needs is copied."""
    function, arrays = getattr(hm, name), arrays_of(name)
    first, *rest = arrays
    options = options_of(name)[0]
    beside = [n for n in rest if isinstance(make(arrays[n]), list | np.ndarray)]
    case = Case(function, arrays, options, (first,), make, generic)
    assert check(case, beside, outputs=False) == 0
    if name == "cross_entropy":
        soft = Case(function, arrays | SOFT, options, (first,), make, generic)
        assert check(soft, ["targets"], outputs=False) == 0


@every
def test_a_returned_gradient_is_the_callers_own(name):
    """And the kernel that computes it runs once."""
    if "return_grad" not in parameters_of(name):
        return
    function, arrays = getattr(hm, name), arrays_of(name)
    case = Case(function, arrays, {"return_grad": True}, (next(iter(arrays)),))
    with mock.patch.object(_torch_tensors, "by_kernel", wraps=_torch_tensors.by_kernel) as kernel:
        assert isinstance(case(), tuple)
    assert kernel.call_count == 1
    returned = case.outputs()[1:]
    assert returned
    assert check(case, returned, outputs=False) == 0


@pytest.mark.parametrize("generic", [False, True])
def test_with_return_grad_the_loss_keeps_its_gradient(generic):
    """A learned temperature too, which the returned gradient does not cover."""
    arrays = {
        "logits": ARRAYS["logits"],
        "targets": ARRAYS["targets"],
        "temperature": np.array(0.7),
    }
    for learned in (("logits",), ("temperature",), ("logits", "temperature")):
        case = Case(hm.cross_entropy, arrays, {}, learned, generic=generic)
        both = Case(hm.cross_entropy, arrays, {"return_grad": True}, learned, generic=generic)
        for ours, truth in zip(both.gradients(2), case.gradients(2), strict=True):
            torch.testing.assert_close(ours, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("direct", [True, False])
def test_linear_in_tiles(direct, rng):
    """Each is computed again for its gradient, from all that it was computed from."""
    arrays = {
        "hidden": rng.normal(size=(20, 4)),
        "weight": rng.normal(size=(6, 4)),
        "targets": rng.integers(0, 6, 20),
        "bias": rng.normal(size=6),
        "temperature": np.array(0.7),
    }
    learned = ("hidden", "weight") if direct else ("hidden", "weight", "bias", "temperature")
    with mock.patch.object(generic_linear, "TILE_LOGITS", 1):
        check(Case(hm.linear_cross_entropy, arrays, {"reduction": "none"}, learned), list(arrays))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_attention_and_a_sum_in_place(dtype):
    """As in a residual connection, o += x."""

    def gradients(add: Callable[..., Any]) -> Any:
        given = [torch.tensor(ARRAYS[n], dtype=dtype, requires_grad=True) for n in "qkv"]
        out = add(hm.attention(*given))
        return torch.autograd.grad((out**2).sum(), given)

    truth = gradients(lambda out: out + 1)
    got = unless_refused(lambda: gradients(lambda out: out.add_(1)))
    if got is not None:
        for ours, theirs in zip(got, truth, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert (got is None) == (dtype in (torch.float64, torch.float32))  # halves are saved in float32


def test_inside_torchs_transforms():
    x, where = torch.tensor(ARRAYS["x"]), MASK.copy()
    _, pull = torch.func.vjp(lambda x: hm.softmax(x, where=where), x)
    weights = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    truth = pull(weights)[0].clone()
    alter(where)
    assert torch.equal(pull(weights)[0], truth)


LAYOUTS = {
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape) if a.ndim == 2 else a,
    "backwards": lambda a: np.flip(np.flip(a).copy()),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "columns": lambda a: np.array(a, order="F"),
}


@every
@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_any_layout_beside_a_tensor(name, layout):
    """torch takes neither negative strides nor another byte order, and warns of read-only ones."""
    arrays = arrays_of(name)
    arrays |= {n: LAYOUTS[layout](a) for n, a in arrays.items() if a.dtype.kind != "i"}
    first, *rest = arrays
    options = options_of(name)[0]
    native = {n: np.array(a, a.dtype.newbyteorder("=")) for n, a in arrays.items()}
    given = {first: torch.tensor(native[first], requires_grad=True)}
    plain = {n: torch.tensor(native[n]) for n in rest}
    want = tensors_of(getattr(hm, name)(**given, **plain, **options))
    torch.set_warn_always(True)
    try:
        got = tensors_of(getattr(hm, name)(**given, **{n: arrays[n] for n in rest}, **options))
    finally:
        torch.set_warn_always(False)
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


class Careless(torch.autograd.Function):
    """x**2 by memory that torch does not watch, as hotmax once had it."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: Any) -> Any:
        ctx.x, ctx.factor = x.detach().numpy(), factor
        return factor * x**2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 2 * ctx.factor * torch.from_numpy(ctx.x) * g, None


@pytest.mark.parametrize("change", ["x", "weights"])
def test_the_check_sees_what_it_is_for(change):
    arrays = {"x": ARRAYS["x"], "weights": ARRAYS["weights"]}
    case = Case(lambda x, weights: Careless.apply(x, weights), arrays, {}, ("x",))
    with pytest.raises(AssertionError, match=f"{change} changed before backward pass 1"):
        check(case, [change], outputs=False)


@pytest.mark.parametrize("size", [10, 20_000])
@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_a_parameter_that_changes_its_type_before_the_backward_pass(kind, size):
    """Its memory is no longer that of the result: kernels must not take one for the other."""
    model = torch.nn.ParameterList(
        [torch.randn(size, 5, generator=torch.Generator().manual_seed(0))]
    )
    x, g = model[0].detach().clone().requires_grad_(), torch.linspace(-1, 1, 5).expand(size, 5)
    torch.softmax(x, -1).backward(g)
    y = hm.softmax(model[0])
    model.to(kind)
    y.backward(g)
    torch.testing.assert_close(model[0].grad, x.grad.to(model[0].grad.dtype), rtol=2e-3, atol=1e-6)
