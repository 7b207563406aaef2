"""torch tensors: derivatives, torch.func, torch.compile, modules."""

from __future__ import annotations

import copy
import io
import math

import numpy as np
import pytest
from optional import library, torch

import hotmax as hm

modules = library("hotmax.torch")
grad, hessian = torch.func.grad, torch.func.hessian
jacfwd, jacrev, vmap = torch.func.jacfwd, torch.func.jacrev, torch.func.vmap

CORE = ("softmax", "log_softmax", "logsumexp", "smoothmax", "softmin", "softargmax", "entropy")
INF = math.inf
# torch's own forward-mode derivatives and compiler use what torch has deprecated.
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]
every = pytest.mark.parametrize("function", [getattr(hm, name) for name in CORE], ids=CORE)


def logits(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


@every
@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("temperature", [0.7, -1.3])
def test_gradcheck(function, axis, temperature):
    x = logits(2, 3).requires_grad_()
    t = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)

    def call(x, t):
        return function(x, temperature=t, axis=axis)

    assert torch.autograd.gradcheck(call, (x, t), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (x, t))


@every
def test_gradcheck_with_a_mask_and_a_temperature_for_each_row(function):
    x = logits(3, 4).requires_grad_()
    t = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    where = torch.tensor([[True, False, True, True]] * 2 + [[True] * 4])

    def call(x, t):
        y = function(x, temperature=t, where=where)
        return torch.where(torch.isfinite(y), y, 0.0)

    assert torch.autograd.gradcheck(call, (x, t), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(call, (x, t))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_quick_derivative_of_softmax_is_torchs(dtype):
    for shape in ((3, 5), (2, 3, 700), (4, 1)):
        x = (logits(*shape) * 5).to(dtype).requires_grad_()
        g = logits(*shape, seed=1).to(dtype)
        (ours,) = torch.autograd.grad(hm.softmax(x, temperature=0.5), x, g)
        exact = x.detach().double().requires_grad_()
        (truth,) = torch.autograd.grad(torch.softmax(exact / 0.5, -1), exact, g.double())
        size = (torch.softmax(exact / 0.5, -1) * g.double()).abs().max() / 0.5
        assert (ours.double() - truth).abs().max() <= 2 * torch.finfo(dtype).eps * size


ROWS = torch.tensor(
    [
        [1.0, -INF, 2.0, 3.0],
        [-INF, -INF, -INF, -INF],
        [INF, 1.0, 2.0, INF],
        [1.0, 1.0, 1.0, 1.0],
        [5.0, -INF, -INF, -INF],
    ],
    dtype=torch.float64,
)


@every
@pytest.mark.parametrize("temperature", [1.0, 0.0, INF, -1.5])
@pytest.mark.parametrize("where", [None, [True, False, True, True], [False] * 4])
def test_derivatives_are_never_nan(function, temperature, where):
    mask = None if where is None else torch.tensor(where)
    x = ROWS.clone()
    if where is not None:
        x[:, 1] = math.nan  # what hides under the mask does not leak
    x.requires_grad_()
    t = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)
    y = function(x, temperature=t, where=mask)
    y = torch.where(torch.isfinite(y), y, 0.0)
    by_x, by_t = torch.autograd.grad((y * logits(*y.shape)).sum(), (x, t), create_graph=True)
    assert torch.isfinite(by_x).all()
    assert torch.isfinite(by_t)
    down = temperature < 0 or (function is hm.softmin and not temperature < 0)
    absent = x == (INF if down else -INF)
    assert (by_x[absent] == 0).all()
    if mask is not None:
        assert (by_x[:, ~mask] == 0).all()
    if temperature in (0.0, INF) and function is not hm.smoothmax:
        assert (by_x == 0).all()
        assert by_t == 0


def test_a_large_derivative_at_an_absent_class_does_not_count():
    x = torch.tensor([[0.0, 1.0, -INF]], dtype=torch.float64, requires_grad=True)
    for g in (INF, math.nan):
        (by_x,) = torch.autograd.grad(hm.softmax(x), x, torch.tensor([[1.0, 2.0, g]]).double())
        p = hm.softmax(x.detach())[0]
        assert torch.allclose(by_x[0, 1], p[0] * p[1])
        assert by_x[0, 2] == 0


def special_logits(rows, classes, dtype):
    """Random rows, some with -inf, with +inf, with a nan, and with nothing else than -inf."""
    x = (logits(rows, classes) * 5).to(dtype)
    x[1::7, 1::2] = -INF
    x[2::7, ::3] = INF
    x[3::7, -1] = math.nan
    x[4::7] = -INF
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.5, -1.5, 0.0, 1e-42, 1e42])
def test_a_rows_derivative_is_the_same_in_every_batch(dtype, temperature):
    """Alone, among many rows shared by threads, and with a temperature for each row."""
    before = hm.get_threads()
    hm.set_threads(2)
    try:
        for classes in (3, 37, 700):
            x = special_logits(40_000 // classes, classes, dtype).requires_grad_()
            g = logits(*x.shape, seed=1).to(dtype)
            g[:, 1] = INF
            together = torch.autograd.grad(hm.softmax(x, temperature=temperature), x, g)[0]
            each = torch.full((len(x), 1), temperature, dtype=torch.float64)
            apart = torch.autograd.grad(hm.softmax(x, temperature=each), x, g)[0]
            torch.testing.assert_close(apart, together, rtol=0, atol=0, equal_nan=True)
            for r in range(14):
                row = x.detach()[r].clone().requires_grad_()
                alone = torch.autograd.grad(hm.softmax(row, temperature=temperature), row, g[r])[0]
                torch.testing.assert_close(alone, together[r], rtol=0, atol=0, equal_nan=True)
    finally:
        hm.set_threads(before)


def test_derivatives_that_lie_anyhow_in_memory():
    """The gradient of a sum is one number without strides, and a transpose has its own."""
    x = logits(300, 70).float().requires_grad_()
    g = logits(70, 300, seed=1).float()
    straight = torch.autograd.grad(hm.softmax(x), x, g.T.contiguous())[0]
    for point, cotangent in ((x, g.T), (x.detach().T.clone().T.requires_grad_(), g.T)):
        found = torch.autograd.grad(hm.softmax(point), point, cotangent)[0]
        assert torch.equal(found, straight)
    total = torch.autograd.grad(hm.softmax(x)[:, :1].expand(-1, 70).sum(), x)[0]
    first = torch.autograd.grad(70 * torch.softmax(x, -1)[:, 0].sum(), x)[0]
    torch.testing.assert_close(total, first, rtol=1e-4, atol=1e-6)
    assert torch.autograd.grad(hm.softmax(x).sum(), x)[0].abs().max() < 1e-7
    many = x.detach().reshape(2, 3, 2, 5, 5, 70).requires_grad_()
    by_many = torch.autograd.grad(hm.softmax(many), many, g.T.reshape(many.shape))[0]
    assert torch.equal(by_many.reshape(x.shape), straight)
    number = torch.tensor(0.7, dtype=torch.float64)
    for temperature in (number, number.expand(300, 1), number.repeat(1, 300).T):
        found = torch.autograd.grad(hm.softmax(x, temperature=temperature), x, g.T)[0]
        wanted = torch.autograd.grad(hm.softmax(x, temperature=0.7), x, g.T)[0]
        assert torch.equal(found, wanted)


def test_nan_stays_visible_in_derivatives():
    x = torch.tensor([[0.0, math.nan], [0.0, 1.0]], requires_grad=True)
    (by_x,) = torch.autograd.grad(hm.softmax(x)[:, 0].sum(), x)
    assert torch.isnan(by_x[0]).all()
    assert torch.isfinite(by_x[1]).all()


@every
def test_a_learnable_temperature_trains(function):
    x = logits(16, 5)
    target = function(x, temperature=0.6)
    temperature = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([temperature], max_iter=60, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (function(x, temperature=temperature) - target).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert abs(temperature.item() - 0.6) < 1e-3


def test_kernels_run_on_the_tensors_memory():
    """The same bits as NumPy's, whatever the strides."""
    x = logits(40, 300, dtype=torch.float32)
    for tensor in (x, x.T, x[:, ::3], x[::2].contiguous(), x.clone().requires_grad_()):
        ours = hm.softmax(tensor, temperature=0.7)
        assert np.array_equal(
            ours.detach().numpy(), hm.softmax(tensor.detach().numpy(), temperature=0.7)
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype):
    x = logits(3, 6).to(dtype).requires_grad_()
    for name in CORE:
        y = getattr(hm, name)(x, temperature=0.5)
        assert y.dtype is dtype
        wide = getattr(hm, name)(x.detach().double(), temperature=0.5)
        assert torch.allclose(y.detach().double(), wide, rtol=2 * torch.finfo(dtype).eps, atol=0)
        (by_x,) = torch.autograd.grad(y.sum(), x)
        assert by_x.dtype is dtype


def test_no_grad_and_inference_mode():
    x = logits(3, 4).requires_grad_()
    with torch.no_grad():
        assert not hm.softmax(x).requires_grad
    with torch.inference_mode():
        assert not hm.softmax(x).requires_grad
    assert not hm.softmax(x.detach()).requires_grad
    assert hm.softmax(x).requires_grad


@every
def test_torch_func(function):
    x = logits(3, 4)

    def call(row, t=0.7):
        return function(row, temperature=t)

    truth = torch.autograd.functional.jacobian(call, x[0])
    assert torch.allclose(jacrev(call)(x[0]), truth)
    assert torch.allclose(jacfwd(call)(x[0]), truth)
    assert torch.allclose(vmap(call)(x), call(x))
    temperatures = torch.tensor([0.5, 0.7, 1.0], dtype=torch.float64)
    each = vmap(grad(lambda r, t: call(r, t).square().sum()), (0, 0))(x, temperatures)
    for row, t, got in zip(x, temperatures, each, strict=True):
        row = row.clone().requires_grad_()
        assert torch.allclose(got, torch.autograd.grad(call(row, t).square().sum(), row)[0])
    second = torch.autograd.functional.hessian(lambda r: call(r).square().sum(), x[0])
    assert torch.allclose(hessian(lambda r: call(r).square().sum())(x[0]), second)


@pytest.mark.slow
def test_compile():
    def layer(x, t):
        return hm.softmax(x, temperature=t) + hm.logsumexp(x, temperature=t, keepdims=True)

    x, t = logits(3, 4), torch.tensor(0.7, dtype=torch.float64)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found = []
    for function in (layer, compiled):
        a, b = x.clone().requires_grad_(), t.clone().requires_grad_()
        y = function(a, b)
        found.append((y.detach(), *torch.autograd.grad(y.sin().sum(), (a, b))))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-12)


def test_modules():
    x = logits(3, 4, dtype=torch.float32)
    assert torch.allclose(modules.Softmax(0)(x), torch.softmax(x, 0))
    assert torch.allclose(modules.LogSoftmax(temperature=2.0)(x), torch.log_softmax(x / 2, -1))
    layer = modules.Softmax(temperature=2.0, learnable=True)
    assert repr(layer) == "Softmax(dim=-1, temperature=2, learnable=True)"
    assert list(layer.state_dict()) == ["temperature"]
    assert not list(modules.Softmax().parameters())
    layer(x)[:, 0].sum().backward()
    assert layer.temperature.grad != 0

    other = modules.Softmax(learnable=True)
    other.load_state_dict(layer.state_dict())
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for twin in (other, copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert torch.equal(twin(x), layer(x))
    assert torch.equal(torch.nn.Sequential(layer)(x), layer(x))
    with pytest.raises(ValueError, match="temperature must not be nan"):
        modules.Softmax(temperature=math.nan)


def test_other_tensors_work_or_say_why():
    assert hm.softmax(torch.zeros(2, 3, device="meta")).shape == (2, 3)
    with pytest.raises(TypeError, match="strided"):
        hm.softmax(torch.eye(3).to_sparse())


@pytest.mark.parametrize("shape", [(2, 3), (200, 300)])
def test_kernels_stay_away_from_tensors_without_numbers(shape):
    """Under modes that fake or record operations, and of zeros that have no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    x, other = torch.randn(shape), torch.randn(shape)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert hm.softmax(x).fake_mode is mode
    recorded = make_fx(lambda z: hm.softmax(z))(x)
    torch.testing.assert_close(recorded(other), torch.softmax(other, -1))
    zeros = torch._efficientzerotensor(shape)
    torch.testing.assert_close(hm.softmax(zeros), torch.softmax(torch.zeros(shape), -1))


@pytest.mark.parametrize("shape", [(2, 3), (200, 300)])
def test_negated_views(shape):
    x = torch.randn(shape)
    negated = torch.complex(x, x).conj().imag  # a view of x that is read as -x
    assert negated.is_neg()
    torch.testing.assert_close(hm.softmax(negated), torch.softmax(-x, -1))
    torch.testing.assert_close(hm.logsumexp(negated), torch.logsumexp(-x, -1))
    grads = []
    for softmax in (hm.softmax, lambda z: torch.softmax(z, -1)):
        point = x.clone().requires_grad_()
        softmax(point).backward(negated)
        grads.append(point.grad)
    torch.testing.assert_close(*grads)
