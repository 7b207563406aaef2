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
    from hotmax._backends.torch_calibrators import FORMULAS, STACKED
    from hotmax.torch import calibrator

    made, x = fitted(method, input)
    if method in (*FORMULAS, STACKED):
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


def hostile(classes):
    """Rows that a calibrator takes: large, far apart, with classes that are not there."""
    rest, gone = classes - 1, -np.inf
    rows = [
        [0.0] * classes,
        [1e4, *[0.0] * rest],
        [*[-1e5] * rest, 1e5],
        [1e30, *[-1e30] * rest],
        [*[-1e300] * rest, 1e300],
        [*[-1e308] * rest, 1e308],
        [gone, *np.arange(1.0, classes)],
        [*[gone] * rest, 2.0],
        [1000.0, 999.0, *[gone] * (classes - 2)],
        [1e-300, *[-1e-300] * rest],
        [800.0, *[0.0] * rest],
    ]
    return np.array(rows)


@pytest.mark.parametrize("limit", [None, 0.0, np.inf])
@pytest.mark.parametrize("method", FAMILIES)
def test_rows_of_every_kind(method, limit):
    """As the calibrator's where it takes a row; nan where it refuses it."""
    from hotmax.torch import calibrator

    made, x = fitted(method)
    if limit is not None:
        if method != "temperature":
            return
        made.parameters_ = {"temperature": limit}
    classes = x.shape[1]
    x = sample(classes, 200)[0] * 0.9  # other rows: at a fitted one, steps turn with rounding
    module, half = calibrator(made), calibrator(made, dtype=torch.float32)
    rows = hostile(classes)
    found = module(torch.tensor(rows)).numpy()
    np.testing.assert_allclose(found, made.predict_proba(rows), rtol=1e-12, atol=1e-12)
    near = half(torch.tensor(x, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(near, made.predict_proba(x.astype(np.float32)), atol=1e-4)
    for wrong in (np.nan, np.inf, -np.inf):
        for place in range(classes):
            bad = x[:3].copy()
            bad[1] = wrong if wrong == -np.inf else bad[1]
            bad[1, place] = wrong
            with pytest.raises(ValueError, match=r"nan|inf|class"):
                made.predict_proba(bad)
            for one, kind in ((module, torch.float64), (half, torch.float32)):
                p = one(torch.tensor(bad, dtype=kind)).numpy()
                assert np.isnan(p[1]).all()
                np.testing.assert_allclose(p[[0, 2]], made.predict_proba(x[[0, 2]]), atol=1e-4)
    whole = np.round(x).astype(np.int64)
    found = module(torch.tensor(whole))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), made.predict_proba(whole), rtol=1e-12, atol=1e-12)
    assert half(torch.tensor(whole)).dtype == torch.float32
    for count in (0, 1, classes - 1, classes + 1):
        with pytest.raises(ValueError, match=rf"must have {classes} classes, got {count}"):
            module(torch.zeros(2, count))
    with pytest.raises(ValueError, match="classes, got 1"):
        module(torch.tensor(1.0))


# Operations that torch.onnx.export translates: all modules of these were run by ONNX Runtime.
EXPORTED = {
    *("add.Tensor", "amax.default", "argmax.default", "clamp.default", "div.Tensor", "eq.Scalar"),
    *("exp.default", "expand.default", "full_like.default", "gather.default", "ge.Tensor"),
    *("gt.Scalar", "gt.Tensor", "index.Tensor", "log.default", "log1p.default", "log_softmax.int"),
    *("matmul.default", "maximum.default", "minimum.default", "mul.Tensor", "neg.default"),
    *("ones_like.default", "round.default", "rsub.Scalar", "select.int", "softmax.int"),
    *("softplus.default", "squeeze.dim", "stack.default", "sub.Tensor", "sum.dim_IntList"),
    *("sym_size.int", "to.dtype", "transpose.int", "unsqueeze.default", "where.self"),
    *("zeros_like.default", "_assert_tensor_metadata.default"),
}


@pytest.mark.parametrize("method", FAMILIES)
def test_what_is_exported_gives_the_same(method):
    module, made, x = module_of(method)
    example = torch.tensor(x[:7])
    other = torch.tensor(x[50:])
    wanted = made.predict_proba(x[50:])
    rows = torch.export.Dim("rows")
    exported = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
    names = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert names
    assert {name.removeprefix("aten.") for name in names} <= EXPORTED
    np.testing.assert_allclose(exported.module()(other).numpy(), wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("method", ["ensemble", "isotonic", "histogram"])
def test_shares_are_no_scalar_factors(method):
    """ONNX's optimiser drops factors within 1e-5 of 1: a share must not be one by itself."""
    module, made, x = module_of(method)
    assert "shares" in made.parameters_
    exported = torch.export.export(module, (torch.tensor(x[:7]),))
    names = exported.graph_signature.inputs_to_buffers
    shares = {node for node, buffer in names.items() if buffer == "shares"}
    users = {
        str(node.target)
        for node in exported.graph.nodes
        if any(str(one) in shares for one in node.args)
    }
    assert users == {"aten.matmul.default"}


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
    assert {"temperature", "uniform", "diagonal", "bias"} == set(module.state_dict())
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
