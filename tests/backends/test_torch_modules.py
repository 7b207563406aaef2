"""The modules of hotmax.torch: losses under autocast, torch.compile and checkpoints."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from optional import torch

import hotmax as hm

pytestmark = pytest.mark.torch

F = torch.nn.functional


def batch(kind=None, shape=(6, 5)):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=shape)).to(kind or torch.float32)
    y = torch.from_numpy(rng.integers(0, shape[1], (shape[0], *shape[2:])))
    y[0] = -100
    return x, y


def linear_inputs(kind=None):
    rng = np.random.default_rng(1)
    hidden, weight, bias = (
        torch.from_numpy(rng.normal(size=shape)).to(kind or torch.float32)
        for shape in ((6, 3), (5, 3), (5,))
    )
    return hidden, weight, batch()[1], bias


def losses():
    """(name, module, its arguments, the same by the function, by torch's own operations)."""
    modules = hm.torch
    x, y = batch()
    other = batch()[0].flip(0)
    hidden, weight, labels, bias = linear_inputs()
    some = {"ignore_index": -100}
    w = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0])

    def p_of(x, y):
        return torch.softmax(x, 1).gather(1, y.clamp(min=0)[:, None])[:, 0]

    def brier(x, y):
        hot = F.one_hot(y.clamp(min=0), 5)
        return ((torch.softmax(x, 1) - hot) ** 2).sum(1)[y >= 0].mean()

    def focal(x, y):
        p = p_of(x, y)[y >= 0]
        return (-((1 - p) ** 2) * torch.log(p)).mean()

    def distilled(x, z):
        p, q = torch.log_softmax(z / 2, 1), torch.log_softmax(x / 2, 1)
        return 4 * F.kl_div(q, p, log_target=True, reduction="batchmean")

    return {
        "cross_entropy": (
            modules.CrossEntropyLoss(label_smoothing=0.1, weight=w), (x, y),
            lambda x, y: hm.cross_entropy(x, y, label_smoothing=0.1, weight=w, **some),
            lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1, weight=w)),
        "focal": (modules.FocalLoss(2.0), (x, y), lambda x, y: hm.focal_loss(x, y, **some), focal),
        "brier": (modules.BrierLoss(), (x, y), lambda x, y: hm.brier_loss(x, y, **some), brier),
        "mae": (modules.MAELoss(), (x, y), lambda x, y: hm.mae_loss(x, y, **some),
                lambda x, y: (1 - p_of(x, y))[y >= 0].mean()),
        "distillation": (modules.DistillationLoss(2.0), (x, other),
                         lambda x, z: hm.distillation_loss(x, z.detach(), 2.0), distilled),
        "linear": (modules.LinearCrossEntropyLoss(), (hidden, weight, labels, bias),
                   lambda h, w, y, b: hm.linear_cross_entropy(h, w, y, b, **some),
                   lambda h, w, y, b: F.cross_entropy(h @ w.T + b, y)),
    }  # fmt: skip


NAMES = ("cross_entropy", "focal", "brier", "mae", "distillation", "linear")


def leaves(arguments):
    return [t.clone().requires_grad_(t.is_floating_point()) for t in arguments]


def gradients(call, arguments):
    given = leaves(arguments)
    loss = call(*given)
    loss.backward()
    return loss.detach(), [t.grad for t in given if t.grad is not None]


@pytest.mark.parametrize("name", NAMES)
def test_modules_are_the_functions_and_what_torch_computes(name):
    module, arguments, function, theirs = losses()[name]
    loss, grads = gradients(module, arguments)
    again, others = gradients(function, arguments)
    assert torch.equal(loss, again)
    want, wanted = gradients(theirs, arguments)
    torch.testing.assert_close(loss, want)
    if name == "distillation":
        wanted = wanted[:1]  # the teacher is fixed
    assert len(grads) == len(wanted)
    for ours, same, his in zip(grads, others, wanted, strict=True):
        assert torch.equal(ours, same)
        torch.testing.assert_close(ours, his)
    assert "temperature" in repr(module)
    copy.deepcopy(module).load_state_dict(module.state_dict())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_a_graph_break(name, dynamic):
    """fullgraph=True raises at the first one; the kernels compute, so the bits are the same."""
    module, arguments, _, _ = losses()[name]
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    loss, grads = gradients(compiled, arguments)
    want, wanted = gradients(module, arguments)
    assert torch.equal(loss, want)
    for ours, eager in zip(grads, wanted, strict=True):
        assert torch.equal(ours, eager)
    with torch.no_grad():
        assert torch.equal(compiled(*arguments), want)


def test_the_compiled_graph_has_the_operator():
    found = []

    def backend(graph, inputs):
        found.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch._dynamo.reset()
    x, y = batch()
    torch.compile(hm.torch.CrossEntropyLoss(), backend=backend, fullgraph=True)(x, y)
    assert any("hotmax.loss" in name for name in found)


def test_the_operator_keeps_to_the_rules_of_torch():
    """opcheck: schema, fake tensors, autograd."""
    from hotmax._backends.torch_operators import loss_operator

    x, y = batch(torch.float64)
    hidden, weight, labels, bias = linear_inputs(torch.float64)
    for reduction in ("mean", "none"):
        arguments = ("cross_entropy", x.clone().requires_grad_(), y, None, None, [0.7, 0.1], 1,
                     -100, reduction, True)  # fmt: skip
        torch.library.opcheck(loss_operator, arguments)
    arguments = ("linear_cross_entropy", hidden.requires_grad_(), labels, weight.requires_grad_(),
                 bias.requires_grad_(), [1.0, 0.0], -1, -100, "mean", True)  # fmt: skip
    torch.library.opcheck(loss_operator, arguments)


def test_compiled_losses_of_rows():
    x, y = batch(shape=(4, 5, 3))
    module = hm.torch.CrossEntropyLoss(reduction="none")
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    weights = torch.arange(12.0).reshape(4, 3)

    def weighted(call):
        return lambda x, y: (call(x, y) * weights).sum()

    loss, (grad,) = gradients(weighted(compiled), (x, y))
    want, (wanted,) = gradients(weighted(lambda x, y: F.cross_entropy(x, y, reduction="none")),
                                (x, y))  # fmt: skip
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(grad, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_gives_a_float32_loss(name):
    module, arguments, _, _ = losses()[name]
    halves = [t.bfloat16() if t.is_floating_point() else t for t in arguments]
    given = leaves(halves)
    assert module(*given).dtype is torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = module(*given)
        if name == "cross_entropy":
            assert F.cross_entropy(*given).dtype is loss.dtype
    assert loss.dtype is torch.float32
    loss.backward()
    assert given[0].grad.dtype is torch.bfloat16
    wide = [t.float() if t.is_floating_point() else t for t in halves]
    assert torch.equal(loss, module(*wide))
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(compiled(*halves), loss.detach())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(name, reentrant):
    module, arguments, _, _ = losses()[name]
    want, wanted = gradients(module, arguments)

    def call(*given):
        return torch.utils.checkpoint.checkpoint(module, *given, use_reentrant=reentrant)

    loss, grads = gradients(call, arguments)
    assert torch.equal(loss, want)
    assert all(torch.equal(a, b) for a, b in zip(grads, wanted, strict=True))


def test_wrong_arguments_are_told_at_once():
    for make, words in (
        (lambda: hm.torch.FocalLoss(-1.0), "gamma"),
        (lambda: hm.torch.BrierLoss(reduction="median"), "reduction"),
        (lambda: hm.torch.MAELoss(temperature=float("nan")), "temperature"),
        (lambda: hm.torch.LinearCrossEntropyLoss(label_smoothing=2.0), "label_smoothing"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


# --- the axis of classes ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5)])
def test_labels_that_fit_axis_1(shape):
    x, y = batch(torch.float64, shape)
    y = y.clamp(min=0)
    for logits, labels in ((x, y), (x.numpy(), y.numpy())):
        for function in (hm.cross_entropy, hm.brier_loss, hm.focal_loss, hm.perplexity):
            with pytest.raises(ValueError, match=r"targets .* axis=1"):
                function(logits, labels)
            function(logits, labels, axis=1)
    with pytest.raises(ValueError, match="probabilities are given as floats"):
        hm.cross_entropy(x, y[:1])


def test_as_many_classes_as_positions_are_torchs_in_the_module():
    x, y = batch(torch.float64, (2, 4, 4))
    y = y.clamp(min=0)
    torch.testing.assert_close(hm.torch.CrossEntropyLoss()(x, y), F.cross_entropy(x, y))
    assert not torch.allclose(hm.cross_entropy(x, y), F.cross_entropy(x, y))  # the last axis


# --- a fixed temperature in the state_dict --------------------------------------------------------


@pytest.mark.parametrize("layer", [hm.torch.Softmax, hm.torch.LogSoftmax])
def test_a_temperature_is_saved_with_the_weights(layer, tmp_path):
    """To the last bit, through a file, in a model that was built with another one."""
    temperature = 2.3830000000000005
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), layer(temperature=temperature))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), layer())
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert other[1].temperature == temperature
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(other(x), model(x))
    assert other.half()[1].temperature == temperature
    assert isinstance(copy.deepcopy(other)[1].temperature, float)


def test_a_state_dict_without_a_temperature_loads():
    """As one of torch.nn.Softmax, whose state is empty; what is no temperature is refused."""
    layer = hm.torch.Softmax(temperature=3.0)
    assert not any(layer.load_state_dict(torch.nn.Softmax(dim=-1).state_dict()))
    assert layer.temperature == 3.0
    for wrong in (torch.tensor([1.0, 2.0]), torch.tensor(float("nan")), "warm"):
        with pytest.raises(RuntimeError, match="temperature: "):
            layer.load_state_dict({"temperature": wrong})
        assert layer.temperature == 3.0
    with pytest.raises(RuntimeError, match="Unexpected key"):
        layer.load_state_dict({"temperatures": torch.tensor(1.0)})


def test_fixed_and_learned_temperatures_load_each_other():
    fixed, learned = hm.torch.Softmax(temperature=0.5), hm.torch.Softmax(learnable=True)
    learned.load_state_dict(fixed.state_dict())
    assert learned.temperature.item() == 0.5
    assert isinstance(learned.temperature, torch.nn.Parameter)
    fixed.load_state_dict(hm.torch.Softmax(temperature=4.0, learnable=True).state_dict())
    assert fixed.temperature == 4.0
