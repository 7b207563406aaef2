"""Calibrators as modules of torch: the numbers of the calibrator, exported too."""

from __future__ import annotations

import numpy as np
import pytest
from optional import torch

import hotmax as hm
from hotmax.calibration.families import FAMILIES

pytestmark = pytest.mark.torch


def sample(classes, rows=300):
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(rows, classes)) * 3
    return x, (x / 2 + rng.normal(size=classes) + rng.gumbel(size=x.shape)).argmax(1)


def fitted(method, input="logits"):
    classes = 2 if FAMILIES[method].two_classes else 4
    x, y = sample(classes)
    x = hm.softmax(x) if input == "probabilities" else x
    return hm.calibration.Calibrator(method, input=input).fit(x, y), x


def module_of(method, input="logits"):
    """The module of a method; None where it must say in one line that there is none."""
    from hotmax._backends.torch_calibrators import FORMULAS
    from hotmax.torch import calibrator

    made, x = fitted(method, input)
    if method in FORMULAS:
        return calibrator(made), made, x
    with pytest.raises(ValueError, match="has no formula in torch"):
        calibrator(made)
    return None, made, x


@pytest.mark.parametrize("input", ["logits", "probabilities"])
@pytest.mark.parametrize("method", FAMILIES)
def test_every_family_gives_the_calibrators_numbers(method, input):
    module, made, x = module_of(method, input)
    if module is None:
        return
    found = module(torch.tensor(x))
    np.testing.assert_allclose(found.numpy(), made.predict_proba(x), rtol=1e-12, atol=1e-15)
    assert module(torch.tensor(x, dtype=torch.float32)).dtype == torch.float32
    assert module(torch.tensor(x).reshape(3, 100, -1)).shape == (3, 100, x.shape[1])
    if input == "logits":
        x[::3, 1] = -np.inf
        found = module(torch.tensor(x)).numpy()
        np.testing.assert_allclose(found, made.predict_proba(x), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("method", ["temperature", "matrix", "ensemble", "isotonic", "histogram"])
def test_what_is_exported_gives_the_same(method):
    module, made, x = module_of(method)
    example = torch.tensor(x[:7])
    other = torch.tensor(x[50:])
    wanted = made.predict_proba(x[50:])
    rows = torch.export.Dim("rows")
    exported = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
    names = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert names
    assert all(name.startswith(("aten.", "<built-in")) for name in names), names
    np.testing.assert_allclose(exported.module()(other).numpy(), wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("temperature", [0.0, np.inf, 1e-3, 1e3])
def test_limits_of_temperature(temperature):
    from hotmax.torch import calibrator

    x, y = sample(3)
    scaling = hm.calibration.TemperatureScaling().fit(x, y)
    scaling.parameters_ = {"temperature": temperature}
    x[0, :2] = x[0].max() + 1  # a tie
    x[1, 0] = -np.inf
    found = calibrator(scaling)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(found, scaling.predict_proba(x), rtol=1e-12, atol=1e-15)


def test_parameters_are_buffers_and_go_behind_a_model():
    from hotmax.torch import calibrator

    made, _ = fitted("vector")
    module = calibrator(made, dtype=torch.float32)
    assert {"temperature", "diagonal", "bias"} == set(module.state_dict())
    assert not list(module.parameters())
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), module)
    assert model(torch.zeros(2, 5)).sum(-1).allclose(torch.ones(2))
    assert "method='vector'" in repr(module)


def test_what_has_no_formula_is_told_in_one_line():
    from hotmax.torch import calibrator

    made, _ = fitted("vector")
    made.parameters_ = {**made.parameters_, "curve": np.ones(4)}
    with pytest.raises(ValueError, match="'vector' has no formula in torch; these have: identity"):
        calibrator(made)
    with pytest.raises(TypeError, match="fitted Calibrator"):
        calibrator(hm.calibration.TemperatureScaling())
