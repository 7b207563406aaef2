"""A masked array's mask counts as `where`, in every argument of every public function.

`masked_arguments` says what that means for each. A public function, or an argument of one, that is
missing from that table fails a test here.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import dask.array
import numpy as np
import pytest
from arrays import on
from masked_arguments import TABLE
from masked_meanings import LABELS, OTHER, TRUE, Entry, X, refused

import hotmax as hm
from hotmax import plots
from hotmax.calibration import conformal, request, row_parts
from hotmax.view.report import ReportOptions

# Keywords that functions share, or are many.
OPTIONS = (request.MetricOptions, row_parts.RowOptions, ReportOptions)

# Arguments that are never arrays: numbers, names, flags, functions, results of other functions.
NO_ARRAYS = """
axis keepdims return_sign return_grad return_logsumexp reduction label_smoothing ignore_index gamma
num_segments classes num_classes causal scale size top_k top_p min_p typical_p epsilon eta
top_n_sigma top_a replace ties hard repetition frequency presence repetition_penalty
frequency_penalty presence_penalty offsets return_logprob requests request mu state text
steps order width length length_penalty
end step draws count base per_row probabilities title input progress bins binning norm classwise
debiased interval score curve candidates folds method penalty coverage free path estimator
calibrator other level C fit_intercept class_weight solver tol max_iter warm_start verbose shape
dtype force subject subjects only result ax figure class_names intercept after
points extent queries keys features label shift prior max_rows cluster client parts name
has_labels runner
columns clip cv fit_params logit_source label_source
error errors precision level randomize allow_empty class_conditional calibrator test
multilabel soft_labels third
"""
# One number each in these, though an array elsewhere.
ONE_NUMBER = {
    ("attention_saturation", "target"),
    ("saturation", "target"),
    ("beam_search", "temperature"),
    ("SoftmaxRegression.__init__", "temperature"),
    ("plots.probabilities", "temperature"),
    ("plots.jacobian_map", "temperature"),
    ("plots.hessian_map", "temperature"),
    ("plots.smoothmax_bounds", "temperature"),
    ("plots.contour", "temperature"),
    ("io.source", "logits"),  # the name of an array in a file
    ("io.read", "logits"),  # the name of an array in a file
    ("io.read", "labels"),
    *((name, "seed") for name in ("report", "calibration.select", "laws.check", "laws.compare")),
    *((name, "seed") for name in ("calibration.Calibrator.__init__", "conformal.fit")),
    ("plots.attention_scaling", "seed"),
    ("calibration.compare", "temperatures"),
    ("calibration.ComparisonState.update", "temperatures"),
    *(
        (f"calibration.{name}", "seed")
        for name in ("acceptance", "abstention", "by_group", "by_label")
    ),
}
ONE_NUMBER |= {
    ("Sampler.add", "seed"),
    ("sample", "bias"),
    ("truncate", "bias"),
    ("top_logprobs", "k"),
}
PARTITIONS = {
    "partial_fit": ("classes",),
    "temperature_for_entropy": ("target",),
    "decide": ("probabilities",),
}


def public() -> Iterator[tuple[str, Any]]:
    """Every public function, and every method of a public class that is no mere result."""
    spaces = {
        "": (hm, [*hm.__all__, "SoftmaxRegression"]),
        "calibration.": (hm.calibration, hm.calibration.__all__),
        "conformal.": (conformal, ["fit", "Conformal"]),
        "io.": (hm.io, hm.io.__all__),
        "laws.": (hm.laws, ["check", "compare"]),
        "plots.": (plots, plots.__all__),
    }
    for prefix, (space, names) in spaces.items():
        for name in names:
            thing = getattr(space, name)
            if inspect.isclass(thing):
                for method, function in vars(thing).items():
                    if method == "__init__" and dataclasses.is_dataclass(thing):
                        continue
                    if inspect.isfunction(function) and (
                        not method.startswith("_") or method in ("__init__", "__call__")
                    ):
                        yield f"{prefix}{name}.{method}", function
            elif callable(thing):
                yield f"{prefix}{name}", thing


def array_arguments(name: str, function: Any) -> Iterator[str]:
    """The arguments that may be arrays."""
    for argument, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and name.startswith("Sampler."):
            continue  # numbers by name, one for each row at most
        elif parameter.kind is parameter.VAR_KEYWORD:
            shared = next((o for o in OPTIONS if o.__name__ in str(parameter.annotation)), None)
            if shared is not None:
                found = typing.get_type_hints(shared).keys()
                yield from found - set(NO_ARRAYS.split()) - {"seed"}
        elif argument != "self" and (name, argument) not in ONE_NUMBER:
            last = name.rpartition(".")[2]
            if argument not in NO_ARRAYS.split() or argument in PARTITIONS.get(last, ()):
                yield argument


@pytest.mark.parametrize(("name", "function"), list(public()))
def test_every_array_argument_is_in_the_table(name, function):
    entry = TABLE.get(name)
    assert set(array_arguments(name, function)) == set(entry.masks if entry else ())


def test_the_table_names_nothing_that_is_not_public():
    assert set(TABLE) <= {name for name, _ in public()}


ROWS = [(name, argument) for name, entry in TABLE.items() for argument in entry.masks]


def hidden_under(array: np.ndarray, place: int, value: Any) -> np.ma.MaskedArray:
    """The array with one entry masked, and this number under the mask."""
    mask, values = np.zeros(array.shape, bool), array.copy()
    mask.flat[place] = True
    values.flat[place] = value
    return np.ma.MaskedArray(values, mask)


def numbers_of(result: Any) -> Any:
    """Something to compare: a result's fields, if it has any."""
    if dataclasses.is_dataclass(result):
        return {f.name: numbers_of(getattr(result, f.name)) for f in dataclasses.fields(result)}
    if isinstance(result, dict):
        return {key: numbers_of(value) for key, value in result.items()}
    return result


@pytest.mark.parametrize(("name", "argument"), ROWS)
def test_a_mask_means_what_the_table_says(name, argument):
    entry: Entry = TABLE[name]
    given = {**entry.arguments, argument: {**entry.also, **entry.arguments}[argument]}
    array = given[argument]
    place = array.size // 2
    kind = array.dtype.kind
    # What lies under the mask: nan or a number that would show; nan is no integer.
    for junk in {"f": (np.nan, 7.0), "b": (True, False)}.get(kind, (0, 2)):
        masked = hidden_under(array, place, junk)
        meaning = entry.masks[argument]
        if meaning is refused:
            with pytest.raises((ValueError, TypeError), match=argument):
                entry.call(**{**given, argument: masked})
            continue
        want = entry.call(**meaning(given, argument, masked.mask))
        got = entry.call(**{**given, argument: masked})
        np.testing.assert_equal(numbers_of(got), numbers_of(want))


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (name, argument)
        for name, argument in ROWS
        if TABLE[name].masks[argument] is refused
        and argument != "out"
        and name not in ("io.write", "report")  # which writes a file, or takes long
    ],
)
def test_a_mask_that_hides_nothing_is_not_refused(name, argument):
    entry = TABLE[name]
    given = {**entry.arguments, argument: {**entry.also, **entry.arguments}[argument]}
    got = entry.call(**{**given, argument: np.ma.MaskedArray(given[argument])})
    np.testing.assert_equal(str(numbers_of(got)), str(numbers_of(entry.call(**given))))


# --- beside the table --------------------------------------------------------------------------

MASKED = np.ma.MaskedArray([1.0, 9.0, 3.0], [False, True, False])


def test_the_faults_that_were_found():
    assert hm.penalize(MASKED, [0], presence=1.0).tolist() == [0.0, -np.inf, 3.0]
    assert hm.add_bias(MASKED, {0: 1.0}).tolist() == [2.0, -np.inf, 3.0]
    assert hm.gumbel_softmax(MASKED, seed=0)[1] == 0.0
    assert hm.gumbel_softmax(MASKED, seed=0, hard=True, where=[True, True, False]).tolist() == [
        1.0,
        0.0,
        0.0,
    ]
    sampler = hm.Sampler({"presence": 0.1}, seed=0)
    assert 1 not in {int(sampler(MASKED, tokens=[0])) for _ in range(50)}
    one = np.ma.MaskedArray([0.0, 0.0, 5.0], [False, False, True])
    assert hm.kl_divergence([0.0, 1.0, 2.0], one) == hm.kl_divergence([0.0, 1.0], [0.0, 0.0])
    assert hm.logsumexp([1.0, 2.0, 3.0], weights=one + 1) == hm.logsumexp([1.0, 2.0])


def test_masks_of_both_arguments_count():
    first = np.ma.MaskedArray([0.0, 1.0, 2.0], [True, False, False])
    second = np.ma.MaskedArray([0.0, 1.0, 5.0], [False, False, True])
    assert hm.kl_divergence(first, second) == 0.0
    value, (p, q) = hm.kl_divergence(
        np.ma.MaskedArray(X, X > 1), np.ma.MaskedArray(OTHER, OTHER > 1), return_grad=True
    )
    hidden = (X > 1) | (OTHER > 1)
    assert not p[hidden].any()
    assert not q[hidden].any()
    assert value == hm.kl_divergence(X, OTHER, where=~hidden)


def test_the_logits_of_a_step_of_beam_search():
    found = hm.beam_search(lambda p: MASKED[None].repeat(len(p), 0), [0], width=3, length=2)
    assert all(1 not in tokens[1:] for tokens in found.sequences)


def test_a_list_of_masked_arrays_is_refused():
    """NumPy drops the masks of a list's members."""
    for x in ([MASKED, MASKED], [[1.0, np.ma.masked, 2.0]], ([MASKED],)):
        with pytest.raises(TypeError, match=r"x must not be a (list|tuple) with masked arrays"):
            hm.softmax(x)
    with pytest.raises(TypeError, match="where"):
        hm.softmax([1.0, 2.0, 3.0], where=[MASKED > 1])
    with pytest.raises(ValueError, match="temperature must have no masked entries"):
        hm.softmax(X, temperature=np.ma.masked)


def test_integers_and_half_precision_keep_their_kind():
    counts = np.ma.MaskedArray([1, 2, 3], [True, False, False])
    assert hm.penalize(counts, [2], presence=1.0).tolist() == [-np.inf, 2.0, 2.0]
    half = np.ma.MaskedArray(np.array([1, 2, 3], np.float16), [True, False, False])
    result = hm.add_bias(half, {1: 1.0})
    assert result.dtype == np.float16
    assert result.tolist() == [-np.inf, 3.0, 3.0]


def test_dask_arrays_of_masked_arrays():
    """The softmax family honours the masks of blocks; the others refuse them."""
    masked = np.ma.MaskedArray(X, X > 1)
    for chunks in ((2, 3), (2, 2)):
        x = dask.array.from_array(masked, chunks=chunks)
        for function in (hm.softmax, hm.log_softmax, hm.logsumexp, hm.entropy, hm.softargmax):
            got = function(x).compute(scheduler="sync")
            np.testing.assert_allclose(got, function(masked), rtol=1e-14)
        for function in (hm.softmax_jacobian, hm.temperature_derivative):
            with pytest.raises(TypeError, match="x must not be a Dask array of masked arrays"):
                function(x)
        with pytest.raises(TypeError, match="logits must not be a Dask array of masked arrays"):
            hm.cross_entropy(x, LABELS)


@on("torch", "torch, generic", "jax", "dask", "strict")
def test_masked_arrays_beside_those_of_other_libraries(xp):
    """Only `where` may be masked there; of any other argument the library drops the mask."""
    x = xp.make(X)
    mask = np.ma.MaskedArray(TRUE, X > 1)
    want = hm.softmax(X, where=X <= 1)
    np.testing.assert_allclose(xp.back(hm.softmax(x, where=mask)), want, rtol=1e-14)
    with pytest.raises(ValueError, match="temperature must have no masked"):
        hm.softmax(x, temperature=np.ma.MaskedArray(np.ones((4, 1)), [[0], [1], [0], [0]]))
    with pytest.raises(ValueError, match="weights must have no masked"):
        hm.logsumexp(x, weights=np.ma.MaskedArray(X**2, X > 1))
    got = xp.back(hm.softmax_jvp(x, xp.make(OTHER), where=mask))
    np.testing.assert_allclose(got, hm.softmax_jvp(X, OTHER, where=X <= 1), rtol=1e-12)
    with pytest.raises(ValueError, match="tangent must have no masked"):
        hm.softmax_jvp(x, np.ma.MaskedArray(OTHER, X > 1))
    with pytest.raises(ValueError, match="targets must have no masked"):
        hm.cross_entropy(x, np.ma.MaskedArray(LABELS, LABELS > 1))
    with pytest.raises(ValueError, match="logits_q must have no masked"):
        hm.kl_divergence(x, np.ma.MaskedArray(OTHER, X > 1))
