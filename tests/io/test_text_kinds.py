"""Tables as people save them: compressed, UTF-16, decimal commas, JSON lines; columns, clip."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pytest

import hotmax as hm

NAMES = ("dog", "cat", "fox")
HEAD = [*NAMES, "label"]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3)) * 4
    return x, (x / 2 + rng.gumbel(size=x.shape)).argmax(1)


@pytest.fixture
def table(rows, tmp_path):
    """A function that writes the rows as a table."""
    x, y = rows

    def write(name, separator=",", encoding="utf-8", opening=open, decimal=".", head=True):
        lines = [HEAD] if head else []
        for row, number in zip(x.tolist(), y, strict=True):
            label = NAMES[number] if head else str(number)
            lines.append([*(repr(cell).replace(".", decimal) for cell in row), label])
        with opening(tmp_path / name, "wt", encoding=encoding) as file:
            file.writelines(separator.join(line) + "\n" for line in lines)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.csv", {}),
        ("a.csv.gz", {"opening": gzip.open}),
        ("a.TSV.GZ", {"opening": gzip.open, "separator": "\t"}),
        ("u16.csv", {"encoding": "utf-16"}),
        ("u16.tsv", {"encoding": "utf-16", "separator": "\t"}),
        ("u16.csv.gz", {"encoding": "utf-16", "opening": gzip.open}),
        ("decimal.csv", {"separator": ";", "decimal": ","}),
        ("decimal.csv", {"separator": ";", "decimal": ",", "head": False}),
        ("decimal.tsv", {"separator": "\t", "decimal": ",", "encoding": "utf-16"}),
    ],
)
def test_the_same_numbers_from_every_kind(rows, table, name, options):
    x, y = rows
    path = table(name, **options)
    found = hm.io.read(path)
    np.testing.assert_array_equal(found.logits, x)
    np.testing.assert_array_equal(found.labels, y)
    source = hm.io.source([path])
    np.testing.assert_array_equal(np.concatenate([block for block, _ in source.blocks()]), x)
    assert ("decimal commas" in str(found)) == (options.get("decimal") == ",")


def test_a_directory_of_compressed_shards(rows, table, tmp_path):
    table("a.csv.gz", opening=gzip.open)
    table("b.csv.gz", opening=gzip.open)
    assert hm.io.source(tmp_path).rows == 100


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz"])
def test_json_lines(rows, tmp_path, name, as_list):
    x, y = rows
    lines = []
    for row, number in zip(x.tolist(), y, strict=True):
        cells = {"id": "a", "logits": row} if as_list else dict(zip(NAMES, row, strict=True))
        lines.append(json.dumps({**cells, "label": int(number) if as_list else NAMES[number]}))
    opening = gzip.open if name.endswith(".gz") else open
    with opening(tmp_path / name, "wt") as file:
        file.write("\n".join(lines) + "\n\n")
    found = hm.io.read(tmp_path / name)
    np.testing.assert_array_equal(found.logits, x)
    np.testing.assert_array_equal(found.labels, y)
    assert found.class_names == (None if as_list else NAMES)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"a": 1, "b": 2, "label": 0}', "{oops"], "line 2 is not JSON"),
        (['{"a": 1, "b": 2, "label": 0}', '{"a": 1, "label": 0}'], "line 2 has no key 'b'"),
        (['{"a": 1, "b": 2, "label": 0}', '{"a": 1, "b": 2}'], "line 2 has no key 'label'"),
        (['{"a": 1, "b": null, "label": 0}'], "column 'b' holds null"),
        (['{"a": 1, "b": 2}', '{"a": 1, "b": "x"}'], "line 2, key 'b': 'x' is text"),
        (['{"logits": [1, 2]}', '{"logits": [1, 2, 3]}'], "line 2 has 3 logits"),
        (
            ['{"logits": [1, 2], "label": 0}', '{"logits": [1, 2], "label": "a"}'],
            "the label is text",
        ),
        (["[1, 2]"], "line 1 must be an object"),
        (['{"id": 5, "a": 1, "b": 2}'], "column 'id' would be a class"),
    ],
)
def test_json_lines_that_are_wrong(tmp_path, lines, message):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        hm.io.read(path)
    assert str(caught.value).startswith(str(path))


def test_what_cannot_be_read_is_told_with_its_cause(table, tmp_path):
    bare = table("a.csv", encoding="utf-16-le")
    with pytest.raises(ValueError, match="zero bytes, as UTF-16 has, and no byte order mark"):
        hm.io.read(bare)
    (tmp_path / "b.csv").write_text('a,b,label\n"1,5","2,5",0\n')
    with pytest.raises(ValueError, match="'1,5' has a decimal comma between commas"):
        hm.io.read(tmp_path / "b.csv")
    (tmp_path / "c.csv.gz").write_text("a,b,label\n1.5,2.5,0\n")
    with pytest.raises(ValueError, match="Not a gzipped file"):
        hm.io.read(tmp_path / "c.csv.gz")
    whole = table("d.csv.gz", opening=gzip.open).read_bytes()
    (tmp_path / "d.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=re.escape("d.csv.gz")):
        hm.io.read(tmp_path / "d.csv.gz")
    (tmp_path / "e.csv").write_text("a;b;label\n1.234,5;2,5;0\n")
    with pytest.raises(ValueError, match="column 'a' holds text"):
        hm.io.read(tmp_path / "e.csv")


# --- columns ------------------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path):
    path = tmp_path / "wide.csv"
    lines = [f"{i + 17},{i / 7},{i / 3},{-i / 9},0,{i % 3}" for i in range(20)]
    path.write_text("\n".join(["id,p_a,p_b,p_c,y_true,label", *lines]) + "\n")
    return path


def test_columns_say_it_outright(wide):
    found = hm.io.read(wide, columns=["p_c", "p_a"], labels="none")
    assert found.class_names == ("p_c", "p_a")
    np.testing.assert_array_equal(found.logits[9], [-1.0, 9 / 7])
    found = hm.io.read(wide, columns="p_*", labels="label")
    assert found.class_names == ("p_a", "p_b", "p_c")
    assert "logits from columns 'p_a', 'p_b' and 'p_c' (left out: 'id' and 'y_true')" in str(found)
    assert "labels from column 'label'" in str(found)
    source = hm.io.source([wide], "label", columns="p_*")
    assert (source.logit_source or "").startswith("columns 'p_a'")
    assert source.label_source == "column 'label'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "columns 'y_true' and 'label' may all be the label"),
        ({"labels": "label"}, "column 'id' and 'y_true' would be a class"),
        ({"columns": ["p_d"]}, "has no column 'p_d' (--columns), only 'id'"),
        ({"columns": ["p_a", "p_a"]}, "'p_a' is named twice"),
        ({"columns": ["p_a", "label"], "labels": "label"}, "cannot be a class and the label"),
        ({"columns": ["p_a"], "logits": "p_"}, "exclude each other"),
        ({"columns": []}, "columns must name one column at least"),
    ],
)
def test_columns_that_are_wrong(wide, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        hm.io.read(wide, **options)


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (np.arange(1, 31), "counts the rows"),
        (10_000 + 7 * np.arange(30) % 23, "holds whole numbers, most of them different"),
    ],
)
def test_a_column_of_ids_is_refused(tmp_path, kind, ids, said):
    import pandas as pd

    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    frame["nr"] = ids
    frame["label"] = rng.integers(0, 2, 30)
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    for read in (hm.io.read, lambda path, **more: hm.io.source([path], **more)):
        with pytest.raises(ValueError, match=f"column 'nr' {said}"):
            read(path)
        assert read(path, columns=["a", "b"]).class_names == ("a", "b")


@pytest.mark.parametrize("few", [np.full(30, -np.inf), np.arange(30) % 7, np.zeros(30)])
def test_a_column_of_few_whole_numbers_is_a_class(tmp_path, few):
    path = tmp_path / "a.csv"
    rows = zip(np.random.default_rng(1).normal(size=30).tolist(), few.tolist(), strict=True)
    path.write_text("a,b\n" + "".join(f"{x},{y}\n" for x, y in rows))
    assert hm.io.read(path).class_names == ("a", "b")


def test_columns_by_place_where_there_is_no_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{i},{i / 7},{i / 3},{i % 2}\n" for i in range(20)))
    with pytest.raises(ValueError, match="column 1 counts the rows"):
        hm.io.read(path)
    found = hm.io.read(path, columns=["2-3"], labels="last")
    assert found.logits.shape == (20, 2)
    assert found.labels.tolist() == [i % 2 for i in range(20)]
    for wrong in ("0-2", "3-9", "x"):
        with pytest.raises(ValueError, match="columns"):
            hm.io.read(path, columns=[wrong])


def test_columns_are_for_tables(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3) + 0.5)
    with pytest.raises(ValueError, match="has arrays, and no columns"):
        hm.io.read(tmp_path / "a.npy", columns=["a"])
    with pytest.raises(ValueError, match="columns and clip are for files"):
        hm.io.source(np.eye(3) + 0.5, columns=["a"])


# --- clip ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_probabilities_with_exact_zeros(tmp_path, dtype):
    p = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], dtype)
    np.savez(tmp_path / "a.npz", probabilities=p, labels=[0, 1])
    options = {"input": "probabilities", "clip": 1e-12}
    found = hm.io.read(tmp_path / "a.npz", **options)
    np.testing.assert_allclose(found.logits, np.log(np.maximum(p.astype(float), 1e-12)), rtol=1e-6)
    source = hm.io.source([tmp_path / "a.npz"], **options)
    assert hm.calibration.nll(source) == pytest.approx((np.log(2) - np.log(1e-12)) / 2, rel=1e-6)
    with pytest.raises(ValueError, match=re.escape("(--clip 1e-12)")):
        hm.calibration.fit_temperature(hm.io.source([tmp_path / "a.npz"], input="probabilities"))
    for wrong in (0.0, 1.0, -1e-3, float("nan")):
        with pytest.raises(ValueError, match="clip must lie above 0 and below 1"):
            hm.io.read(tmp_path / "a.npz", input="probabilities", clip=wrong)
    with pytest.raises(ValueError, match="clip is for input"):
        hm.io.read(tmp_path / "a.npz", clip=1e-12)


# --- results in tables --------------------------------------------------------------------------


WRITTEN = [
    *(None, NAMES, ("1", "2", "3"), ("2", "0", "1"), ("0", "1", "2"), ("id", "cat", "label")),
    *(
        ("id", "b", "c"),
        ("a", "1", "0"),
        ("1.5", "0.5", "2"),
        ("p[0]", "p[1]", "p[2]"),
        ("-1", "0", "1"),
    ),
]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("names", WRITTEN)
@pytest.mark.parametrize("labelled", [True, False])
def test_a_table_is_read_again_as_it_was_written(rows, tmp_path, kind, names, labelled):
    x, y = rows
    p = hm.softmax(x)
    path = tmp_path / f"a.{kind}"
    labels = y if labelled else None
    hm.io.write(path, [p[:20], p[20:]], shape=p.shape, labels=labels, class_names=names)
    found = hm.io.read(path, input="probabilities")
    np.testing.assert_array_equal(found.logits, np.log(p))
    unnamed = None if kind == "npz" else ("class_0", "class_1", "class_2")
    assert found.class_names == (names or unnamed)
    if labelled:
        np.testing.assert_array_equal(found.labels, y)
        source = hm.io.source([path], input="probabilities")
        np.testing.assert_array_equal(np.concatenate([part for _, part in source.blocks()]), y)
    else:
        assert found.labels is None


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda y: y[:-1], ValueError, "labels must be one for each of 50 rows, got 49"),
        (lambda y: np.append(y, 0), ValueError, "labels must be one for each of 50 rows, got 51"),
        (lambda y: y + 1, ValueError, "labels must lie in 0..2, got 3 in row"),
        (lambda y: y - 1, ValueError, "labels must lie in 0..2, got -1 in row"),
        (lambda y: y + 0.5, TypeError, "labels must be integers"),
        (lambda y: np.ma.array(y, mask=y == 0), ValueError, "labels must have no masked entries"),
    ],
)
def test_labels_are_checked_before_they_are_written(
    rows, tmp_path, kind, called, change, error, message
):
    p, y = hm.softmax(rows[0]), change(rows[1])
    path = tmp_path / f"a.{kind}"
    with pytest.raises(error, match=re.escape(message)):
        hm.io.write(path, [p], shape=p.shape, labels=(lambda: y) if called else y)
    assert not path.exists()


def test_probabilities_are_written_as_floats(rows, tmp_path):
    p = hm.softmax(rows[0])
    with pytest.raises(TypeError, match="dtype must be one of floats, got int64"):
        hm.io.write(tmp_path / "a.csv", [p], shape=p.shape, dtype=np.int64)
    with pytest.raises(ValueError, match="class_names must be different"):
        hm.io.write(tmp_path / "a.csv", [p], shape=p.shape, class_names=["a", "a", "b"])


def test_a_table_that_fails_is_not_there(rows, tmp_path):
    for name in ("a.csv", "a.parquet", "a.npz"):
        with pytest.raises(ValueError, match="60 rows together, got 50"):
            hm.io.write(tmp_path / name, [hm.softmax(rows[0])], shape=(60, 3))
        assert not (tmp_path / name).exists()
    with pytest.raises(ValueError, match=r"must end in one of .npz, .csv, .parquet"):
        hm.io.write(tmp_path / "a.txt", [], shape=(0, 3))
