"""A temperature for each group: where groups differ, where they do not, files, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference_calibration as reference

from hotmax import calibration as c


def rows_of(temperatures, rows, seed=0):
    """Logits with a group for each temperature, which is the true one."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(temperatures)), rows)
    x = rng.normal(size=(len(group), 4)) * 4
    scaled = x / np.asarray(temperatures)[group][:, None]
    return x, (scaled + rng.gumbel(size=x.shape)).argmax(1), group


def test_many_rows_have_the_temperature_of_their_group():
    x, y, group = rows_of([0.8, 2.5], 3000)
    fitted = c.GroupTemperatureScaling().fit(x, y, group)
    for number in range(2):
        alone = reference.temperature(x[group == number], y[group == number])
        assert fitted.temperatures_[str(number)] == pytest.approx(alone, rel=0.01)
    p = fitted.predict_proba(x, group)
    want = reference.softmax(x[-3:], fitted.temperatures_["1"])
    np.testing.assert_allclose(p[-3:], want, rtol=1e-12)
    unseen = fitted.predict_proba(x[:1], ["elsewhere"])
    np.testing.assert_allclose(unseen, reference.softmax(x[:1], fitted.temperature_), rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(x, group), x.argmax(1))


def test_groups_that_are_alike_are_hardly_harmed():
    """20 groups of 30 rows, of one temperature: less than half of the cost of 20 numbers."""
    costs = []
    for seed in range(5):
        x, y, group = rows_of([2.0] * 20, 60, seed)
        fit = np.arange(len(y)) % 2 == 0
        p = c.GroupTemperatureScaling().fit(x[fit], y[fit], group[fit])
        p = p.predict_proba(x[~fit], group[~fit])
        truth = reference.softmax(x[~fit], 2.0)
        costs.append((truth * np.log(truth / p)).sum(1).mean() * fit.sum())
    assert np.mean(costs) < 5.0  # one temperature costs 0.5 nats, and 20 cost 10


def test_saved_and_loaded(tmp_path):
    x, y, group = rows_of([1.0, 3.0], 200)
    names = np.array(["Ost", "West"])[group]
    fitted = c.GroupTemperatureScaling().fit(x, y, names)
    path = tmp_path / "groups.json"
    fitted.save(path)
    again = c.load(path)
    assert type(again) is c.GroupTemperatureScaling
    np.testing.assert_array_equal(again.predict_proba(x, names), fitted.predict_proba(x, names))
    data = json.loads(path.read_text())
    for name, value in {
        "version": 2,
        "input": "odds",
        "classes": 0,
        "temperature": 0.0,
        "deviation": -1,
        "temperatures": {"Ost": "1"},
        "more": 1,
    }.items():
        path.write_text(json.dumps({**data, name: value}))
        with pytest.raises(ValueError, match=f"{path}"):
            c.load(path)


def test_refused():
    x, y, group = rows_of([1.0, 3.0], 20)
    with pytest.raises(ValueError, match="one entry for each of 40 rows"):
        c.GroupTemperatureScaling().fit(x, y, group[:3])
    with pytest.raises(TypeError, match="text or integers"):
        c.GroupTemperatureScaling().fit(x, y, group + 0.5)
    with pytest.raises(ValueError, match="limit"):
        c.GroupTemperatureScaling().fit(x, x.argmax(1), group)
    with pytest.raises(ValueError, match="4 classes"):
        c.GroupTemperatureScaling().fit(x, y, group).predict_proba(x[:, :2], group)
    with pytest.raises(Exception, match="not fitted"):
        c.GroupTemperatureScaling().predict_proba(x, group)
