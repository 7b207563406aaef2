"""Tables: headers told from rows, logits from other columns, and one kind of decimals."""

import json

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hotmax as hm

X = np.random.default_rng(0).normal(size=(6, 3))


@pytest.mark.parametrize("first", [0, 1])
def test_a_header_that_counts_is_no_row(tmp_path, first):
    names = [str(first + i) for i in range(3)]
    pd.DataFrame(X, columns=names).to_csv(tmp_path / "a.csv", index=False)
    found = hm.io.read(tmp_path / "a.csv")
    assert found.class_names == tuple(names)
    np.testing.assert_array_equal(found.logits, X)
    pd.DataFrame(X, columns=names).to_csv(tmp_path / "b.csv", index=False, sep=";", decimal=",")
    found = hm.io.read(tmp_path / "b.csv")
    assert found.class_names == tuple(names)
    np.testing.assert_array_equal(found.logits, X)


@pytest.mark.parametrize(
    "text", ["0,1,2\n5,3,1\n2,4,4\n", "0,1,3\n0.5,1.5,1\n", "2,0,1\n0.5,1,2\n"]
)
def test_a_row_is_no_header(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    found = hm.io.read(tmp_path / "a.csv", labels="none")
    assert len(found.logits) == text.count("\n")


OTHERS = ["score", "sample", "epoch", "entropy", "margin", "gt", "ground_truth", "class", "true"]


@pytest.mark.parametrize("name", [*OTHERS, "labels_true", "Score"])
def test_what_is_no_logit_by_its_name_is_refused(tmp_path, name):
    frame = pd.DataFrame(X, columns=["cat", "dog", name]).assign(y=0)
    frame.to_csv(tmp_path / "a.csv", index=False)
    message = f"column '{name}' would be a class, and is no logit by its name"
    with pytest.raises(ValueError, match=message):
        hm.io.read(tmp_path / "a.csv")
    lazy = dd.from_pandas(frame, npartitions=2)
    with pytest.raises(ValueError, match=message):
        hm.io.source(lazy, "y")


@pytest.mark.parametrize("more", [{"c": 7.5}, {"label": 1}])
def test_a_key_that_the_first_line_lacks_is_an_error(tmp_path, more):
    lines = [{"a": 1.5, "b": 2.0}, {"a": 1.5, "b": 2.0, **more}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    key = next(iter(more))
    with pytest.raises(ValueError, match=f"line 2 has the key '{key}', and the first has not"):
        hm.io.read(tmp_path / "a.jsonl")
    assert hm.io.read(tmp_path / "a.jsonl", columns=["a", "b"]).logits.shape == (2, 2)


def test_a_list_beside_columns_of_numbers_is_ambiguous(tmp_path):
    cells = {"a": [1.5, 2.0], "b": [2.0, 1.0], "label": [0, 1]}
    lists = {"embedding": [[1.0, 2.0, 3.0], [3.0, 4.0, 5.5]]}
    pq.write_table(pa.table({**cells, **lists}), tmp_path / "a.parquet")
    rows = [{**{k: v[i] for k, v in (cells | lists).items()}} for i in (0, 1)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in ("a.parquet", "a.jsonl"):
        path = tmp_path / name
        with pytest.raises(
            ValueError, match="the list 'embedding', or the columns 'a' and 'b', may"
        ):
            hm.io.read(path)
        assert hm.io.read(path, columns=["a", "b"]).logits.shape == (2, 2)
        assert hm.io.read(path, logits="embedding").logits.shape == (2, 3)
    pq.write_table(pa.table({"label": [0, 1], "id": [5, 6], **lists}), tmp_path / "b.parquet")
    assert hm.io.read(tmp_path / "b.parquet").logits.shape == (2, 3)


def test_points_and_commas_in_one_table_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a;b;label\n1.5;1,234;0\n2.5;2,345;1\n")
    with pytest.raises(
        ValueError, match=r"'1,234' in line 2 has a decimal comma, and '1.5' in line"
    ):
        hm.io.read(tmp_path / "a.csv")


def test_a_remote_file_that_changed_is_read_again():
    import fsspec

    system = fsspec.filesystem("memory")
    for number in (1.5, 9.5):
        with system.open("/changed/a.csv", "wb") as file:
            file.write(f"a,b,label\n{number},2.5,0\n".encode())
        assert hm.io.read("memory://changed/a.csv").logits[0, 0] == number
    for name in ("_temporary/b.csv", ".draft.csv"):
        with system.open(f"/changed/{name}", "wb") as file:
            file.write(b"a,b,label\n7.5,2.5,1\n")
    assert hm.io.read("memory://changed").logits.tolist() == [[9.5, 2.5]]
