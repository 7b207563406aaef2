"""A row's bits depend on the row, the temperature and the dtype, and on nothing else."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from comparisons import dtype_of

import hotmax as hm
from hotmax._core import kernel_choice, rows as row_plan

CLASSES = (2, 10, 64, 65, 128, 129, 1000, 5000, 200_000, 2_000_000)
TYPES = ("float32", "float64")
BATCHES = (1, 2, 7, 1000)
FUNCTIONS = (hm.softmax, hm.log_softmax, hm.logsumexp, hm.smoothmax, hm.entropy, hm.softargmax)
LARGEST = 6_000_000  # entries of a batch: with long rows the batches are smaller

each_length = pytest.mark.parametrize("n", CLASSES)
each_type = pytest.mark.parametrize("type_name", TYPES)


@pytest.fixture(autouse=True)
def two_threads():
    before = hm.get_threads()
    hm.set_threads(2)
    yield
    hm.set_threads(before)


def row_of(n: int, type_name: str) -> np.ndarray:
    return (np.random.default_rng(n).standard_normal(n) * 4).astype(dtype_of(type_name))


def bits(result) -> bytes:
    return np.ascontiguousarray(result).tobytes()


def functions_for(n: int) -> tuple:
    return FUNCTIONS if n <= 5000 else FUNCTIONS[:3]


@each_type
@each_length
def test_batch_size_and_place(n, type_name):
    row = row_of(n, type_name)
    alone = {f: bits(f(row)) for f in functions_for(n)}
    for size in BATCHES:
        if size > 1 and size * n > LARGEST:
            continue
        batch = np.random.default_rng(1).standard_normal((size, n)).astype(row.dtype)
        places = sorted({0, size // 2, size - 1, min(size - 1, 33)})
        batch[places] = row
        for f, want in alone.items():
            got = f(batch)
            for place in places:
                assert bits(got[place]) == want, (f.__name__, size, place)


@each_type
@pytest.mark.parametrize("n", CLASSES[:-1])
def test_hard_neighbours(n, type_name):
    """Rows of nan, inf, limits and huge numbers beside it change nothing."""
    row = row_of(n, type_name)
    batch = np.stack([row] * 9)
    batch[0] = np.nan
    batch[2] = -np.inf
    batch[3, 0] = np.inf
    batch[5] = 1e30
    batch[7, 1] = np.nan
    for f in functions_for(n):
        got = f(batch)
        for place in (1, 4, 6, 8):
            assert bits(got[place]) == bits(f(row)), (f.__name__, place)
    temperature = np.array([0.0, 0.7, np.inf, 1e-300, 0.7, -1.0, 0.7, 1e300, 0.7]).reshape(-1, 1)
    got = hm.softmax(batch, temperature=temperature)
    for place in (1, 4, 6, 8):
        assert bits(got[place]) == bits(hm.softmax(row, temperature=0.7)), place


@each_type
@each_length
def test_threads(n, type_name):
    size = max(1, min(1000, LARGEST // n))
    batch = np.random.default_rng(2).standard_normal((size, n)).astype(dtype_of(type_name))
    for f in functions_for(n):
        hm.set_threads(1)
        one = bits(f(batch))
        for count in (2, 3):
            hm.set_threads(count)
            assert bits(f(batch)) == one, (f.__name__, count)


@each_type
@each_length
def test_axis(n, type_name):
    size = 3 if n <= 200_000 else 1
    rows = np.stack([np.roll(row_of(n, type_name), i) for i in range(size)])
    columns = np.ascontiguousarray(rows.T)
    for f in functions_for(n):
        want = f(rows)
        got = f(columns, axis=0)
        assert bits(got.T if got.ndim == 2 else got) == bits(want), f.__name__
        assert bits(f(rows[0].reshape(1, n, 1), axis=1)) == bits(want[0]), f.__name__
        if n % 2 == 0:
            assert bits(f(rows[0].reshape(2, -1), axis=None)) == bits(want[0]), f.__name__
            assert bits(f(rows[0].reshape(2, -1), axis=(0, 1))) == bits(want[0]), f.__name__


@each_type
@pytest.mark.parametrize("n", [2, 7, 8, 10, 47, 48, 63, 64, 143, 1000, 5000, 17_000])
@pytest.mark.parametrize("columns", [3, 16, 40, 528])
def test_columns_as_they_lie(n, columns, type_name):
    """Columns side by side have the bits of rows, also beside columns that are special."""
    if n * columns > 700_000:
        columns = 24
    x = (np.random.default_rng(n).standard_normal((n, columns)) * 4).astype(dtype_of(type_name))
    halves = np.round(2 * x) / 2  # exponents half way to others, and ties
    x[:, 0] = -1e3 + x[:, 0] / 64  # a sum far from 1
    x[n // 2 :, 1] += 20  # a maximum well above the first rows
    special = x.copy()
    special[n // 2, 1] = np.nan
    special[: n // 2, 2] = -np.inf
    special[n - 1, columns - 1] = 1e30
    own = np.geomspace(0.01, 100, columns) * (-1) ** np.arange(columns)
    own[columns // 2] = 0.0
    for f in (hm.softmax, hm.log_softmax, hm.logsumexp):
        for case, t in ((halves, hm.temperature_of_base(2)), (x, 1.0), (special, 1.0), (x, own)):
            case = case.astype(x.dtype)
            by_row = t if isinstance(t, float) else t[:, None]
            rows = f(np.ascontiguousarray(case.T), temperature=by_row).T
            by_column = t if isinstance(t, float) else t[None]
            assert bits(f(case, axis=0, temperature=by_column)) == bits(rows), f.__name__
            cube = np.stack([case[::-1], case])
            assert bits(f(cube, axis=1, temperature=by_column)[1]) == bits(rows), f.__name__
            wide = np.zeros((n, columns + 5), x.dtype)[:, 2:-3]
            wide[...] = case
            assert bits(f(wide, axis=0, temperature=by_column)) == bits(rows), f.__name__
            if rows.ndim == 2:
                f(wide, axis=0, temperature=by_column, out=wide)
                assert bits(wide) == bits(rows), f.__name__
                assert not wide.base[:, :2].any()
                assert not wide.base[:, -3:].any()


def test_columns_past_the_caches(monkeypatch):
    monkeypatch.setattr(row_plan, "STREAM", 1)
    x = np.random.default_rng(0).standard_normal((100, 64)).astype(np.float32)
    for columns in (64, 48, 21):
        rows = hm.softmax(np.ascontiguousarray(x[:, :columns].T)).T
        assert bits(hm.softmax(x[:, :columns].copy(), axis=0)) == bits(rows), columns


@pytest.mark.parametrize("type_name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("n", [1, 10, 100, 3000, 40_000])
def test_masked_rows_are_those_of_absent_classes(n, type_name):
    """Any layout of x and of the mask; rows of which nothing is left."""
    rng = np.random.default_rng(n)
    kind = dtype_of(type_name)
    x = (rng.standard_normal((9, n)) * 3).astype(kind)
    mask = rng.random((9, n)) < 0.7
    mask[4], mask[1, 0] = False, True
    temperature = np.array([1.0, 0.3, -1.0, 1.0, 1.0, 0.0, -2.0, 7.0, np.inf])[:, None]
    absent = np.where(np.signbit(temperature), np.inf, -np.inf).astype(np.float32).astype(kind)
    empty = {hm.softmax: 0, hm.log_softmax: -np.inf, hm.logsumexp: -np.inf, hm.entropy: 0}
    for f in functions_for(n)[:5]:
        hidden = np.where(mask, x, absent)
        want = np.array(f(hidden, temperature=temperature))
        left = mask.any(-1)
        if f in empty:
            want[~left] = empty[f]
        strided = np.repeat(x, 2, axis=-1)[:, ::2]
        for case, where in ((x, mask), (strided, mask), (x, np.asfortranarray(mask))):
            got = f(case, where=where, temperature=temperature)
            assert bits(got) == bits(want), f.__name__
        columns = np.ascontiguousarray(x.T)
        got = f(columns, where=mask.T, temperature=temperature.T, axis=0)
        assert bits(got.T) == bits(want), f.__name__
        same = f(x, where=mask[3], temperature=temperature)  # a mask of strides 0
        assert bits(same) == bits(f(x, where=np.tile(mask[3], (9, 1)), temperature=temperature))


@pytest.mark.parametrize("type_name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("rows", [1, 3, 300])
def test_a_temperature_for_each_row(rows, type_name):
    """A float for all, arrays of one or of many, of either float type, integers and lists."""
    x = (np.random.default_rng(rows).standard_normal((2, rows, 50)) * 3).astype(dtype_of(type_name))
    own = np.linspace(0.25, 8, 2 * rows).astype(np.float32).reshape(2, rows, 1)
    own[0, 0] = 0.0
    for f in FUNCTIONS:
        want = [f(x[i, r], temperature=float(own[i, r, 0])) for i in range(2) for r in range(rows)]
        want = bits(np.array(want))
        strided = np.repeat(own.astype(np.float64), 3, axis=-1)[..., :1]
        for t in (own, own.astype(np.float64), own.tolist(), np.asfortranarray(own), strided):
            assert bits(f(x, temperature=t)) == want, f.__name__
        want = bits(f(x, temperature=2.0))
        for t in (2, np.float32(2), np.float64(2), np.array(2.0), np.full((1, 1), 2), [2.0]):
            assert bits(f(x, temperature=t)) == want, f.__name__
    for t in (np.nan, np.array([[np.nan]]), np.full((2, rows, 1), np.nan)):
        with pytest.raises(ValueError, match="temperature must not be nan"):
            hm.softmax(x, temperature=t)
    with pytest.raises(ValueError, match="temperature must be a number or broadcast"):
        hm.softmax(x[0], temperature=np.ones((1, 1, 1)))


def layouts_of(row: np.ndarray) -> dict[str, np.ndarray]:
    """The same row, lying in memory in other ways."""
    n = row.size
    layouts = {}
    wide = np.zeros(3 * n, row.dtype)
    wide[::3] = row
    layouts["every third"] = wide[::3]
    layouts["backwards"] = row[::-1].copy()[::-1]
    for offset in (1, 3):  # in entries: not at a cache line
        buffer = np.zeros(n + offset, row.dtype)
        buffer[offset:] = row
        layouts[f"{offset} entries on"] = buffer[offset:]
    buffer = np.zeros(row.nbytes + 1, np.uint8)
    buffer[1:] = row.view(np.uint8)
    layouts["unaligned"] = buffer[1:].view(row.dtype)
    layouts["other byte order"] = row.astype(row.dtype.newbyteorder())
    layouts["pickled"] = pickle.loads(pickle.dumps(row))  # its dtype is another object
    frozen = row.copy()
    frozen.flags.writeable = False
    layouts["read-only"] = frozen
    return layouts


@each_type
@each_length
def test_memory_layout(n, type_name):
    """Strides, alignment, byte order, read-only, in place."""
    row = row_of(n, type_name)
    layouts = layouts_of(row)
    assert not layouts["unaligned"].flags.aligned
    assert layouts["pickled"].dtype is not row.dtype
    for f in functions_for(n):
        want = f(row)
        for name, x in layouts.items():
            before = x.tobytes()
            got = f(x)
            assert got.dtype == row.dtype
            assert bits(got) == bits(want), (f.__name__, name)
            assert x.tobytes() == before
    for f in (hm.softmax, hm.log_softmax):
        want = bits(f(row))
        fresh = layouts_of(row)
        for name in ("every third", "3 entries on", "unaligned", "backwards"):
            x = fresh[name]
            f(x, out=x)
            assert bits(x) == want, (f.__name__, name)


@each_type
@each_length
def test_paths(n, type_name):
    """The quick way for small arrays, out=, in place, and a mask that allows everything."""
    row = row_of(n, type_name)
    everything = np.ones(n, bool)
    for f in functions_for(n):
        want = bits(f(row))
        assert bits(f(row[None])) == want, f.__name__
        assert bits(f(row[None, None])) == want, f.__name__
        assert bits(f(row, where=everything)) == want, f.__name__
        assert bits(f(row[None], where=everything)) == want, f.__name__
        assert bits(f(row, temperature=np.ones(1))) == want, f.__name__
        assert bits(f(row, temperature=1)) == want, f.__name__
    for f in (hm.softmax, hm.log_softmax):
        want = bits(f(row))
        assert bits(f(row, out=np.empty_like(row))) == want, f.__name__
        assert bits(f(row, out=np.empty(2 * n, row.dtype)[::2])) == want, f.__name__
        buffer = np.empty(n + 1, row.dtype)[1:]
        assert bits(f(row, out=buffer)) == want, f.__name__
        here = row.copy()
        assert bits(f(here, out=here)) == want, f.__name__
        here = row[None].copy()
        assert bits(f(here, out=here)) == want, f.__name__


@each_type
def test_results_written_past_the_caches(type_name):
    """Outputs beyond the STREAM size are stored another way: the same bits, at any alignment."""
    n = 5003
    row = row_of(n, type_name)
    batch = np.empty((900, n), row.dtype)
    batch[...] = row
    want = bits(hm.softmax(row))
    got = hm.softmax(batch)
    assert all(bits(got[r]) == want for r in range(0, 900, 53))
    buffer = np.empty(900 * n + 3, row.dtype)[3:].reshape(900, n)
    hm.softmax(batch, out=buffer)
    assert all(bits(buffer[r]) == want for r in range(0, 900, 53))
    hm.softmax(batch, out=batch)
    assert all(bits(batch[r]) == want for r in range(0, 900, 53))


@pytest.mark.parametrize("past_the_caches", [False, True])
@pytest.mark.parametrize("n", [65, 79, 80, 81, 128, 129, 400, 1000, 1023, 1024, 8192, 8193, 33_000])
def test_groups_and_rows_written_while_the_next_is_computed(n, past_the_caches, monkeypatch):
    """At any address: writing runs ahead of reading by what x and out ask for."""
    if past_the_caches:
        monkeypatch.setattr(row_plan, "STREAM", 1)
        monkeypatch.setattr(kernel_choice, "STREAM_ROW", 1)
    rng = np.random.default_rng(n)
    batch = (rng.standard_normal((13, n)) * 4).astype(np.float32)
    batch[2, n - 1] = np.nan  # in the last part, when the first ones have overwritten row 1
    batch[4, 0] = np.inf
    batch[5] *= 1e6
    batch[7, n // 2 :] -= 400  # parts that are computed again
    batch[9, : n // 2] -= 400
    batch[12, -1] = 1e30
    want = [bits(hm.softmax(row)) for row in batch]
    for at_x in (0, 1, 4, 16, 1000):
        for at_out in (0, 3, 16, 100, 1008):
            # from one page on: addresses that have the same last bits are what matters
            x, out = (np.full(batch.size + 2048, 7, np.float32) for _ in range(2))
            begin_x, begin_out = (-a.ctypes.data % 4096 // 4 for a in (x, out))
            inside = slice(begin_out + at_out, begin_out + at_out + batch.size)
            rows = x[begin_x + at_x :][: batch.size].reshape(batch.shape)
            rows[...] = batch
            hm.softmax(rows, out=out[inside].reshape(batch.shape))
            assert [bits(row) for row in out[inside].reshape(batch.shape)] == want, (at_x, at_out)
            assert (np.delete(out, np.r_[inside]) == 7).all()
        hm.softmax(rows, out=rows)
        assert [bits(row) for row in rows] == want, at_x


def assert_each_as_alone(batch, temperature, what):
    got = hm.softmax(batch, temperature=temperature)
    for r, row in enumerate(batch):
        assert bits(got[r]) == bits(hm.softmax(row, temperature=temperature)), (what, r)


ODD_NANS = np.array([0x7F800001, 0xFF800001, 0x7FC00123, 0xFFFFFFFF], np.uint32).view(np.float32)
POWERS = [*range(20, 260, 3), *(k + half for k in (47, 48, 49, 184, 185, 186) for half in (0, 0.5))]


@pytest.mark.parametrize("place", [0, 5, 16, 8000, 8191, 8192, 9000, 9004])
@pytest.mark.parametrize("temperature", [1.0, 0.37, -1.0])
def test_an_entry_out_of_reach(place, temperature):
    """A long row goes the quick way, unless it is the first of a call or an entry is far away."""
    x = np.random.default_rng(0).standard_normal((4, 9005)).astype(np.float32)
    far = [np.inf, 1e30, 5678.0, *(np.log(2) * temperature * k for k in POWERS)]
    for entry in (*far, *(-v for v in far), *ODD_NANS):
        x[2, place] = entry
        assert_each_as_alone(x, temperature, entry)


@pytest.mark.parametrize("hidden", [-np.inf, -1e30, -1e9, -6000, -5700])
def test_parts_that_are_masked(hidden):
    """They add nothing, if they are far enough below the others."""
    x = np.random.default_rng(0).standard_normal((9, 30_000)).astype(np.float32)
    x[1, :9000] = x[2, 9000:] = x[4, 8192:16384] = x[5] = x[7, :29_000] = hidden
    x[7, 29_000:] -= 5600  # near enough to some of them
    x[8, :20_000] = -np.inf
    x[8, 20_000] = np.nan
    assert_each_as_alone(x, 1.0, hidden)
    assert_each_as_alone(-x, -1.0, hidden)


@pytest.mark.parametrize("n", [100, 700, 3000, 9005])
def test_ties(n):
    """They are counted in every way that a row can go, beside as much that is no tie."""
    x = np.round(np.random.default_rng(n).standard_normal((32, n)) * 4) / 3 - 5
    x[:16] = np.maximum(x[:16], x.max(-1)[:16, None] - 1)  # many, at the maximum and below it
    x[16:, [3, 83]] = np.linspace(2, 9, 16)[:, None]  # two, in one of the sums of a line
    x[1::2, n - 1] = x.max(-1)[1::2]
    for temperature in (1.0, -1.0):
        logits = (x * temperature).astype(np.float32)
        assert_each_as_alone(logits, temperature, temperature)
        columns = hm.softmax(logits.T.copy(), axis=0, temperature=temperature)
        assert bits(columns.T) == bits(hm.softmax(logits, temperature=temperature))


@pytest.mark.parametrize("fall", [8, 16, 18, 20, 21, 22, 23, 24, 40])
def test_parts_far_below_their_row(fall):
    """What a part is multiplied by keeps its digits, whatever power of two it is relative to."""
    x = np.random.default_rng(0).standard_normal((8, 196_608)) / 100
    x[:, 100_000:] = x[:, 100_000:] * 100 - fall
    x.reshape(8, -1, 8192)[:, 13:, :16] -= 5  # the first lines, which tell the power of two
    assert_each_as_alone(x.astype(np.float32), 1.0, fall)


@pytest.mark.parametrize("type_name", ["float16", "bfloat16"])
@pytest.mark.parametrize("n", [2, 64, 65, 1000, 200_000])
def test_half_precision(n, type_name):
    row = row_of(n, type_name)
    for f in functions_for(n):
        want = bits(f(row))
        batch = np.stack([row] * 7)
        assert bits(f(batch)[3]) == want, f.__name__
        assert bits(f(np.ascontiguousarray(batch.T), axis=0)[..., 5]) == want, f.__name__
        assert bits(f(np.repeat(row, 2)[::2])) == want, f.__name__
        hm.set_threads(1)
        assert bits(f(batch)[6]) == want, f.__name__
        hm.set_threads(2)


@pytest.mark.parametrize("temperature", [0.0, 0.1, 1e-300, 1e300, np.inf, -0.7])
@each_type
def test_at_every_temperature(type_name, temperature):
    """One of each kind of row: short, long, shared among threads."""
    for n in (10, 65, 5000, 1_100_000):
        row = row_of(n, type_name)
        batch = np.stack([row, -row])
        for f in functions_for(n)[:3]:
            want = bits(f(row, temperature=temperature))
            hm.set_threads(1)
            assert bits(f(batch, temperature=temperature)[0]) == want, (f.__name__, n)
            hm.set_threads(2)
            masked = f(batch, temperature=temperature, where=np.ones(n, bool))
            assert bits(masked[0]) == want, (f.__name__, n)
            transposed = f(np.ascontiguousarray(batch.T), temperature=temperature, axis=0)
            assert bits(transposed[..., 0]) == want, (f.__name__, n)


def test_a_hundred_million_classes():
    """Threads share the one row; the bits are those of a single thread."""
    x = np.random.default_rng(0).standard_normal(1_000_003, np.float32)
    x = np.resize(x, (1, 100_000_000))
    x[0, 77_777_777] = 20.0
    shared = hm.softmax(x)
    assert abs(float(shared.sum(dtype=np.float64)) - 1) < 1e-7
    total = hm.logsumexp(x)
    hm.set_threads(1)
    assert bits(hm.logsumexp(x)) == bits(total)
    hm.softmax(x, out=x)
    assert np.array_equal(x.view(np.int32), shared.view(np.int32))
