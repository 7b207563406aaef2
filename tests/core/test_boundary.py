"""What comes in: errors before any work, naming the argument, what came and what is accepted."""

from __future__ import annotations

import inspect
import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
from arrays import on
from comparisons import TYPES, dtype_of
from masked_arguments import TABLE

import hotmax as hm
from hotmax._backends.operation import OPERATIONS

ENTRYWISE = (hm.softmax, hm.log_softmax, hm.softmin, hm.hardmax)
REDUCING = (hm.logsumexp, hm.smoothmax, hm.entropy, hm.softargmax)
EVERY = ENTRYWISE + REDUCING
WITH_TEMPERATURE = tuple(f for f in EVERY if f is not hm.hardmax)

every = pytest.mark.parametrize("function", EVERY, ids=lambda f: f.__name__)
with_temperature = pytest.mark.parametrize("function", WITH_TEMPERATURE, ids=lambda f: f.__name__)
entrywise = pytest.mark.parametrize("function", ENTRYWISE, ids=lambda f: f.__name__)
reducing = pytest.mark.parametrize("function", REDUCING, ids=lambda f: f.__name__)

X = np.arange(6.0).reshape(2, 3)
# Small float32 arrays have a way of their own through softmax: every error is tried on them too.
both = pytest.mark.parametrize("x", [X, X.astype(np.float32)], ids=["float64", "float32"])


def refuses(error, *words, call):
    """The call raises exactly this kind of error, and its message holds each word."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert word in message, f"{word!r} is not in {message!r}"


# --- x ----------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize(
    ("x", "came"),
    [
        (np.array([1 + 2j]), "complex128"),
        (np.array([1, None]), "object"),
        (np.array(["1", "2"]), "U1"),
        ("12", "U2"),
        (b"12", "S2"),
        (None, "object"),
        ({"a": 1}, "object"),
        ([1, "a"], "<U"),
        (np.array([1], "datetime64[s]"), "datetime64"),
        (np.zeros(2, [("a", float)]), "a"),
        (10**400, "object"),
    ],
)
def test_wrong_kind_of_x(function, x, came):
    refuses(TypeError, "x ", came, "float16, bfloat16, float32, float64", call=lambda: function(x))


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is float64 here")
def test_long_double_is_refused():
    x = np.array([1.0], np.longdouble)
    refuses(TypeError, "x ", x.dtype.name, "float64", call=lambda: hm.softmax(x))


@every
def test_ragged_x(function):
    refuses(ValueError, "x ", "list", call=lambda: function([[1.0], [1.0, 2.0]]))


def test_x_must_be_given_and_options_named():
    with pytest.raises(TypeError):
        hm.softmax()
    with pytest.raises(TypeError):
        hm.softmax(X, -1)
    with pytest.raises(TypeError):
        hm.softmax(X, temprature=2.0)


# --- axis -------------------------------------------------------------------------------------


@every
@both
@pytest.mark.parametrize("axis", [2, -3, (0, 2), (5,)])
def test_axis_out_of_range(function, x, axis):
    refuses(ValueError, "axis", "-2..1", call=lambda: function(x, axis=axis))
    with pytest.raises(np.exceptions.AxisError):  # also an IndexError, as in NumPy
        function(x, axis=axis)


@every
@both
@pytest.mark.parametrize("axis", [1.0, -1.0, "0", (0, 0.5), True, (False,), np.float64(-1.0)])
def test_wrong_kind_of_axis(function, x, axis):
    refuses(TypeError, "axis", repr(axis), "int", call=lambda: function(x, axis=axis))


@every
@pytest.mark.parametrize("axis", [(0, 0), (1, -1)])
def test_axis_named_twice(function, axis):
    refuses(ValueError, "axis", repr(axis), "twice", call=lambda: function(X, axis=axis))


# --- temperature ------------------------------------------------------------------------------


@with_temperature
@both
@pytest.mark.parametrize("t", [np.nan, np.float32(np.nan), [[1.0], [np.nan]]])
def test_temperature_nan(function, x, t):
    refuses(ValueError, "temperature", "nan", call=lambda: function(x, temperature=t))


@with_temperature
@both
@pytest.mark.parametrize("t", ["1", None, 1j, [1, None], [[1.0], [1.0, 2.0]], {}, np.array("x")])
def test_wrong_kind_of_temperature(function, x, t):
    refuses(TypeError, "temperature", "real number", call=lambda: function(x, temperature=t))


@with_temperature
@both
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2,), (3, 1), (1, 1, 1), (0, 1)])
def test_temperature_of_the_wrong_shape(function, x, shape):
    refuses(
        ValueError,
        "temperature",
        "(2, 1)",
        str(shape),
        call=lambda: function(x, temperature=np.ones(shape)),
    )


# --- where ------------------------------------------------------------------------------------


@every
@both
@pytest.mark.parametrize("where", [1, [1, 0, 1], np.ones((2, 3)), "yes", [None, True, True]])
def test_where_must_hold_bools(function, x, where):
    refuses(TypeError, "where", "bool", call=lambda: function(x, where=where))


@every
@both
@pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 3, 1), (1, 2, 3)])
def test_where_of_the_wrong_shape(function, x, shape):
    refuses(
        ValueError,
        "where",
        "(2, 3)",
        str(shape),
        call=lambda: function(x, where=np.ones(shape, bool)),
    )


@every
def test_ragged_where(function):
    refuses(ValueError, "where ", "list", call=lambda: function(X, where=[[True], [True, False]]))


@every
def test_where_beside_a_masked_array(function):
    x = np.ma.masked_array(X, mask=X > 4)
    refuses(TypeError, "where", "bool", call=lambda: function(x, where=np.ones((2, 3))))
    refuses(ValueError, "where", "(2, 3)", call=lambda: function(x, where=np.ones(2, bool)))


# --- out --------------------------------------------------------------------------------------


@entrywise
@both
def test_out(function, x):
    kind = x.dtype.name
    for out in ([0.0] * 3, 5, "out", memoryview(x.copy())):
        refuses(
            TypeError, "out", type(out).__name__, "array", call=lambda o=out: function(x, out=o)
        )
    for shape in ((3, 2), (6,), (2, 3, 1), (1, 2, 3), ()):
        out = np.full(shape, 7, x.dtype)
        refuses(ValueError, "out", "(2, 3)", str(shape), call=lambda o=out: function(x, out=o))
        assert (out == 7).all()
    for dtype in (np.float16, np.int64, np.complex128, np.float32, np.float64):
        if dtype != x.dtype:
            out = np.full((2, 3), 7, dtype)
            refuses(ValueError, "out", kind, out.dtype.name, call=lambda o=out: function(x, out=o))
            assert (out == 7).all()
    out = np.full((2, 3), 7, x.dtype)
    out.flags.writeable = False
    refuses(ValueError, "out", "read-only", call=lambda: function(x, out=out))
    assert (out == 7).all()
    broadcast = np.broadcast_to(np.full(3, 7, x.dtype), (2, 3))
    refuses(ValueError, "out", "read-only", call=lambda: function(x, out=broadcast))


@reducing
def test_out_of_reductions(function):
    for shape in ((3,), (2, 1), (2, 3), ()):
        out = np.full(shape, 7.0)
        refuses(ValueError, "out", "(2,)", str(shape), call=lambda o=out: function(X, out=o))
        assert (out == 7).all()
    out = np.full(2, 7, np.float32)
    refuses(ValueError, "out", "float64", "float32", call=lambda: function(X, out=out))
    refuses(ValueError, "out", "(2, 1)", call=lambda: function(X, keepdims=True, out=np.zeros(2)))
    refuses(TypeError, "out", "list", call=lambda: function(X, out=[0.0, 0.0]))


# --- weights ----------------------------------------------------------------------------------


def test_weights():
    refuses(
        ValueError, "weights", "(2, 3)", "(2,)", call=lambda: hm.logsumexp(X, weights=np.ones(2))
    )
    refuses(TypeError, "weights", "complex128", call=lambda: hm.logsumexp(X, weights=1j))
    refuses(TypeError, "weights", "U1", call=lambda: hm.logsumexp(X, weights="1"))
    refuses(ValueError, "weights", call=lambda: hm.logsumexp(X, weights=[[1.0], [1.0, 2.0]]))
    refuses(TypeError, "x ", "complex128", call=lambda: hm.logsumexp([1j], weights=1.0))
    refuses(
        ValueError, "temperature", call=lambda: hm.logsumexp(X, weights=1.0, temperature=np.nan)
    )
    refuses(ValueError, "axis", call=lambda: hm.logsumexp(X, weights=1.0, axis=2))
    refuses(TypeError, "where", call=lambda: hm.logsumexp(X, weights=1.0, where=[1, 0, 1]))
    out = np.full(3, 7.0)
    refuses(ValueError, "out", "(2,)", call=lambda: hm.logsumexp(X, weights=1.0, out=out))
    assert (out == 7).all()


# --- temperature_of_base ----------------------------------------------------------------------


def test_base():
    for base in (-1, -0.5, np.nan, -np.inf):
        refuses(ValueError, "base", repr(base), call=lambda b=base: hm.temperature_of_base(b))
    for base in ("2", None, 2j, [2.0], True, np.ones(2)):
        refuses(TypeError, "base", repr(base), call=lambda b=base: hm.temperature_of_base(b))


# --- nothing is written, nothing is said ------------------------------------------------------


@entrywise
def test_nothing_is_written_on_an_error(function):
    for options in (
        {"axis": 2},
        {"axis": "0"},
        {"where": [1, 0, 1]},
        {"where": np.ones(2, bool)},
        {"temperature": np.nan},
        {"temperature": "1"},
        {"temperature": np.ones(3)},
    ):
        if function is hm.hardmax and "temperature" in options:
            continue
        for kind in (np.float32, np.float64):
            x, out = X.astype(kind), np.full((2, 3), 7, kind)
            with pytest.raises((TypeError, ValueError)):
                function(x, out=out, **options)
            assert (out == 7).all()
            with pytest.raises((TypeError, ValueError)):
                function(x, out=x, **options)
            assert (x == X).all()


@every
@pytest.mark.parametrize("type_name", [*TYPES, "int8", "bool", ">f4", ">i2"])
@pytest.mark.parametrize("shape", [(3,), (4, 5), (3, 70), (2, 600), (2, 70_000)])
def test_inputs_are_never_written_to(function, type_name, shape):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) * 3).astype(dtype_of(type_name))
    where = rng.random(shape) < 0.7
    temperature = rng.random((*shape[:-1], 1)) + 0.1
    before = [a.tobytes() for a in (x, where, temperature)]
    for array in (x, where, temperature):
        array.flags.writeable = False
    options = {} if function is hm.hardmax else {"temperature": temperature}
    result = function(x, where=where, **options)
    assert not np.shares_memory(result, x)
    assert not np.shares_memory(function(x), x)
    function(x, axis=0)
    assert [a.tobytes() for a in (x, where, temperature)] == before


@every
@pytest.mark.parametrize("type_name", TYPES)
def test_no_warnings_even_where_numpy_would_raise(function, type_name):
    """The caller's error state and warning filters do not reach the arithmetic inside."""
    rows = np.array(
        [[np.inf, -np.inf, 0], [np.nan, 1, 2], [6e4, -6e4, 1], [-np.inf] * 3, [0.0, -0.0, 1e-7]]
    ).astype(dtype_of(type_name))
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for x in (rows, np.tile(rows, (1, 30)), np.tile(rows, (50, 1)).T.copy()):
            function(x)
            function(x, axis=0)
            function(x, where=np.zeros(x.shape, bool))
            if function is not hm.hardmax:
                for t in (0.0, 1e-300, 1e-45, 1e300, np.inf, -1.0, -1e-300, 5e-324, 1.7e308):
                    function(x, temperature=t)
                    function(x, temperature=np.full((x.shape[0], 1), t))
        if function is hm.logsumexp:
            for weights in (0.0, 1e300, 1e-300, np.array([0.0, 5.0, 1.0])):
                for t in (1.0, 1e-300, 1e300, 0.0, np.inf):
                    function(rows, weights=weights, temperature=t)


@reducing
def test_no_warnings_for_a_long_row(function):
    x = np.ones(1_100_000, np.float32)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for t in (1e-300, 1e300):
            function(x, temperature=t)


def test_huge_axis_numbers_and_tuples_are_refused_plainly():
    refuses(ValueError, "axis", call=lambda: hm.softmax(X, axis=10**30))
    refuses(ValueError, "axis", call=lambda: hm.softmax(X, axis=sys.maxsize))


def test_subclasses_are_plain_arrays():
    class Mine(np.ndarray):
        pass

    x = X.view(Mine)
    assert type(hm.softmax(x)) is np.ndarray
    np.testing.assert_array_equal(hm.softmax(x), hm.softmax(X))


def test_a_float_type_that_is_not_accepted():
    """float8 is a float by NumPy's reckoning: it must not come back as one, rounded to two bits."""
    import ml_dtypes

    with pytest.raises(TypeError, match=r"x must hold float16.*got float8_e5m2"):
        hm.softmax(np.ones(3, ml_dtypes.float8_e5m2))


def test_temperatures_of_any_real_type():
    want = hm.softmax([1.0, 2.0], temperature=0.5)
    assert (hm.softmax([1.0, 2.0], temperature=Fraction(1, 2)) == want).all()
    assert (hm.softmax([1.0, 2.0], temperature=10**20) == 0.5).all()
    with pytest.raises(ValueError, match="temperature must fit"):
        hm.softmax([1.0, 2.0], temperature=10**400)


# --- scalars of every function -----------------------------------------------------------------

# What is no array, by the name of the argument.
SCALARS = ("axis", "ignore_index", "num_classes", "reduction", "ties", "replace", "hard",
           "keepdims", "return_sign", "return_grad", "return_logsumexp", "per_row")  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_arrays_in_the_place_of_scalars(name):
    """Before: NumPy's own errors about indices and truth values, and any text was a True."""
    function, entry = getattr(hm, name), TABLE[name]
    for scalar in SCALARS:
        if scalar not in inspect.signature(function).parameters:
            continue
        for wrong in (np.array([0.5, 1.0]), np.array([]), np.array([1, 2]), {}, "no"):
            if scalar == "axis" and isinstance(wrong, dict):
                continue
            refuses(
                (TypeError, ValueError),
                scalar,
                call=lambda: function(**{**entry.arguments, scalar: wrong}),  # noqa: B023
            )


@on("torch", "jax", "dask")
def test_flags_of_other_libraries_are_checked(xp):
    x = xp.make(np.eye(3))
    for name, flag in (("entropy", "keepdims"), ("logsumexp", "return_sign")):
        refuses(TypeError, flag, "no", call=lambda: getattr(hm, name)(x, **{flag: "no"}))  # noqa: B023
