"""Files with one logit for each row: two classes, and what was taken for what."""

from __future__ import annotations

import numpy as np
import pytest
from prediction_files import says, table
from safetensors.numpy import save_file

import hotmax as hm
from hotmax.io import sources

Z = np.array([1.5, -0.25, 3.0, -2.0, 0.5, 0.125])
Y = np.array([1, 0, 1, 0, 0, 1])
PAIRS = np.array([[0.0, z] for z in Z])
SPAM = ["spam" if y else "ham" for y in Y]


def rows_of(header, labels, z=Z):
    return "\n".join([header, *(f"{a},{b}" for a, b in zip(z, labels, strict=True))])


def written(folder):
    """(path, options of read) of the same numbers in every kind of file."""
    np.savez("flat.npz", logits=Z, labels=Y)
    np.savez("column.npz", logits=Z[:, None].astype(np.float32), labels=Y[:, None])
    np.savez("names.npz", logits=Z, labels=Y, classes=["no", "yes"])
    np.savez("bool.npz", logits=Z, labels=Y == 1)
    np.save("x.npy", Z)
    np.save("y.npy", Y)
    (folder / "a.csv").write_text(rows_of("logit,label", Y))
    (folder / "a.jsonl").write_text(
        "\n".join(f'{{"logit": {z}, "label": {y}}}' for z, y in zip(Z, Y, strict=True))
    )
    (folder / "score.csv").write_text(rows_of("score,y_true", Y))
    (folder / "bare.csv").write_text(rows_of("", Y).strip())
    table("a.parquet", logit=Z, label=Y)
    table("list.parquet", logits=[[z] for z in Z], label=Y)
    save_file({"logits": Z, "labels": Y}, "a.safetensors")
    names = ["flat.npz", "column.npz", "names.npz", "bool.npz", "a.csv", "a.jsonl", "score.csv"]
    names += ["bare.csv", "a.parquet", "list.parquet", "a.safetensors"]
    return [("x.npy", {"labels": "y.npy"}), *((name, {}) for name in names)]


def test_every_kind_of_file(folder):
    for path, options in written(folder):
        for found in (hm.io.read(path, **options), hm.io.read([path], **options)):
            np.testing.assert_array_equal(found.logits, PAIRS, err_msg=path)
            np.testing.assert_array_equal(found.labels, Y, err_msg=path)
            assert "(one logit for class " in found.logit_source, path
            assert "2 classes" in str(found)
            assert (found.class_names is None) == (path != "names.npz"), path


def test_in_blocks(folder, monkeypatch):
    monkeypatch.setattr("hotmax.io.parts.BLOCK", 4)
    for path, options in written(folder):
        found = sources.source([path], **options)
        assert (found.classes, found.rows) == (2, 6)
        x, y = zip(*found.blocks(), strict=True)
        np.testing.assert_array_equal(np.concatenate(x), PAIRS, err_msg=path)
        np.testing.assert_array_equal(np.concatenate(y), Y, err_msg=path)


@pytest.mark.parametrize(
    ("header", "labels", "names", "sign"),
    [
        ("logit,label", SPAM, ("ham", "spam"), 1),
        ("spam,label", SPAM, ("ham", "spam"), 1),
        ("ham,label", SPAM, ("spam", "ham"), -1),
        ("logit,label", 2 * Y - 1, ("-1", "1"), 1),
    ],
)
def test_names_of_both_classes(folder, header, labels, names, sign):
    """In the order of the alphabet, as scikit-learn; the column's own name is that of its class."""
    (folder / "a.csv").write_text(rows_of(header, labels, sign * Z))
    for path in ("a.csv", ["a.csv"]):
        found = hm.io.read(path)
        assert found.class_names == names
        assert f"one logit for class '{names[1]}': two classes" in found.logit_source
        yes = Y if sign == 1 else 1 - Y
        np.testing.assert_array_equal(found.labels, yes)
    column = [header.split(",")[0]]
    given = hm.io.read("a.csv", columns=column, labels="none", class_names=["a", "b"])
    assert given.class_names == ("a", "b")


def test_labels_beside_the_file(folder):
    np.save("x.npy", Z)
    (folder / "y.txt").write_text("\n".join(SPAM))
    (folder / "signs.txt").write_text("\n".join(str(2 * y - 1) for y in Y))
    for labels in ("y.txt", SPAM, np.array(SPAM), np.array(SPAM, object)):
        found = hm.io.read("x.npy", labels=labels)
        np.testing.assert_array_equal(found.labels, Y)
        assert found.class_names == ("ham", "spam")
    np.testing.assert_array_equal(hm.io.read("x.npy", labels="signs.txt").labels, Y)
    np.testing.assert_array_equal(hm.io.read("x.npy", labels=Y).labels, Y)
    assert hm.io.read("x.npy").labels is None


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_one_probability(folder, kind):
    p = np.array([0.0, 1.0, 0.25, 0.875, 1e-7, 0.5], kind)
    np.savez("p.npz", probabilities=p, labels=Y)
    options = {"input": "probabilities"}
    tolerance = 4 * np.finfo(kind).eps
    for path in ("p.npz", ["p.npz"]):
        found = hm.io.read(path, **options)
        want = np.stack([1 - p.astype(np.float64), p.astype(np.float64)], axis=1)
        np.testing.assert_allclose(np.exp(found.logits), want, rtol=tolerance)
        assert "one probability for class 1: two classes" in found.logit_source
        least = hm.io.read(path, clip=1e-3, **options).logits.min()
        assert least == pytest.approx(np.log(1e-3), abs=2e-3)
    np.savez("p.npz", probabilities=p * 2, labels=Y)
    says("probabilities", "p.npz", **options)


@pytest.mark.parametrize("as_list", [False, True])
def test_refused(folder, as_list):
    def told(match, name, **options):
        with pytest.raises(ValueError, match=match) as caught:
            hm.io.read([name] if as_list else name, **options)
        assert name in str(caught.value)

    np.savez("p.npz", logits=hm.softmax(PAIRS)[:, 1], labels=Y)
    told('all in 0..1: probabilities, perhaps; say input="probabilities"', "p.npz")
    (folder / "a.csv").write_text(rows_of("logit,label", ["a", "b", "c", "a", "b", "c"]))
    told("two classes, and the labels have 3 names, 'a', 'b' and 'c'", "a.csv")
    (folder / "a.csv").write_text(rows_of("logit,label", ["a"] * 6))
    told("the labels have 1 names, 'a': give class_names", "a.csv")
    (folder / "a.csv").write_text(rows_of("logit,label", Y + 1))
    told("count from 1: subtract 1", "a.csv")
    (folder / "a.csv").write_text(rows_of("n,label", Y, np.arange(6)))
    told("column 'n' counts the rows", "a.csv")
    (folder / "a.csv").write_text(rows_of("pred,label", Y))
    told("column 'pred' would be a class", "a.csv")
    np.savez("a.npz", logits=np.where(Z > 2, np.nan, Z), labels=Y)
    if not as_list:
        told("holds nan at row 2", "a.npz")
    told("3 names of classes for 2 classes", "a.npz", class_names=["a", "b", "c"])


def test_two_columns_without_a_header(folder):
    """Labels only where both classes are there: a column of zeros may be the other class."""
    (folder / "a.csv").write_text("1.5,0\n-0.5,0\n")
    found = hm.io.read("a.csv")
    np.testing.assert_array_equal(found.logits, [[1.5, 0.0], [-0.5, 0.0]])
    assert found.labels is None
