"""Files of independent labels: logits and targets of one shape, read and written."""

from __future__ import annotations

import numpy as np
import pytest
from prediction_files import says, table
from safetensors.numpy import save_file

import hotmax as hm

Z = np.array([[1.5, -0.25], [3.0, -2.0], [0.5, 0.125], [-1.0, 2.0]])
Y = np.array([[1, 0], [1, 1], [0, 0], [0, 1]])
NAMES = ("cat", "dog")


def columns(logits="logit_", targets="label_", order=(0, 1)):
    found = {f"{logits}{name}": Z[:, i] for i, name in enumerate(NAMES)}
    return found | {f"{targets}{NAMES[i]}": Y[:, i] for i in order}


def text(cells):
    rows = zip(*cells.values(), strict=True)
    return "\n".join([",".join(cells), *(",".join(map(str, row)) for row in rows)])


def lines_of_json(cells):
    rows = zip(*(column.tolist() for column in cells.values()), strict=True)
    each = (zip(cells, row, strict=True) for row in rows)
    return "\n".join("{" + ", ".join(f'"{k}": {v}' for k, v in row) + "}" for row in each)


def test_every_kind_of_file(folder):
    np.savez("a.npz", logits=Z, labels=Y, classes=NAMES)
    np.savez("targets.npz", logits=Z.astype(np.float32), targets=Y == 1, classes=NAMES)
    np.save("x.npy", Z)
    np.save("y.npy", Y)
    save_file({"logits": Z, "labels": Y}, "a.safetensors")
    (folder / "a.csv").write_text(text({"id": np.arange(4), **columns()}))
    (folder / "y.csv").write_text(text(columns("score_", "y_", (1, 0))))
    (folder / "own.csv").write_text(text(columns("out ", "is ")))
    (folder / "a.jsonl").write_text(lines_of_json(columns(targets="target_")))
    table("a.parquet", **columns(targets="true_", order=(1, 0)))
    own = {"logits": "out ", "labels": "is "}
    for path, options, names in (
        ("a.npz", {}, NAMES),
        ("targets.npz", {}, NAMES),
        ("x.npy", {"labels": "y.npy"}, None),
        ("x.npy", {"labels": Y, "class_names": NAMES}, NAMES),
        ("a.safetensors", {}, None),
        ("a.csv", {}, NAMES),
        ("a.csv", {"columns": ["logit_*"]}, NAMES),
        ("y.csv", {}, NAMES),
        ("own.csv", own, NAMES),
        ("a.jsonl", {}, NAMES),
        ("a.parquet", {}, NAMES),
    ):
        found = hm.io.read(path, multilabel=True, **options)
        np.testing.assert_array_equal(found.logits, Z, err_msg=path)
        np.testing.assert_array_equal(found.labels, Y, err_msg=path)
        assert found.class_names == names, path
        assert found.multilabel
        assert "4 rows, 2 labels" in str(found)
        assert "targets from" in str(found)
    assert hm.io.read("a.csv", labels="none", multilabel=True).labels is None


def test_several_files(folder):
    for name in "ab":
        np.savez(f"{name}.npz", logits=Z, labels=Y, classes=NAMES)
    found = hm.io.read("*.npz", multilabel=True)
    np.testing.assert_array_equal(found.labels, np.concatenate([Y, Y]))
    assert found.source == "a.npz and 1 more"
    np.savez("b.npz", logits=Z, labels=Y, classes=("cat", "fox"))
    with pytest.raises(ValueError, match=r"a\.npz and b\.npz do not belong together"):
        hm.io.read(["a.npz", "b.npz"], multilabel=True)


def test_one_label(folder):
    np.savez("a.npz", logits=Z[:, 0], labels=Y[:, 0])
    found = hm.io.read("a.npz", multilabel=True)
    np.testing.assert_array_equal(found.logits, Z[:, :1])
    np.testing.assert_array_equal(found.labels, Y[:, :1])


def test_probabilities(folder):
    p = 1 / (1 + np.exp(-Z))
    np.savez("a.npz", probabilities=p, labels=Y)
    found = hm.io.read("a.npz", multilabel=True, input="probabilities")
    np.testing.assert_allclose(found.logits, Z, rtol=1e-14)
    np.savez("a.npz", probabilities=np.where(Z > 2, 1.0, p), labels=Y)
    options = {"multilabel": True, "input": "probabilities"}
    says("row 1 has a probability of exactly 0 or 1", "a.npz", **options)
    clipped = hm.io.read("a.npz", clip=1e-6, **options).logits
    assert clipped[1, 0] == pytest.approx(-np.log(1e-6), rel=1e-6)
    np.savez("a.npz", probabilities=p * 2, labels=Y)
    says("must lie in 0..1, and row", "a.npz", **options)


def test_refused(folder):
    def told(match, name="a.npz", **options):
        says(match, name, multilabel=True, **options)

    np.savez("a.npz", logits=Z, labels=Y)
    says("got shape (4, 2); for", "a.npz")
    says("multilabel=True (--multilabel)", "a.npz")
    told("1 names of", class_names=["a"])
    np.savez("a.npz", logits=Z, labels=Y[:, 0])
    told("targets must be 0 or 1 for each label of each row, of the shape (4, 2)")
    np.savez("a.npz", logits=Z, labels=Y + 1)
    told("targets must be 0 or 1, got int64 2")
    np.savez("a.npz", logits=Z, labels=Y.astype(str))
    told("targets must be 0 or 1, got <U")
    np.savez("a.npz", logits=1 / (1 + np.exp(-Z)), labels=Y)
    told("holds probabilities, not logits: all of them lie in 0..1")
    np.savez("a.npz", logits=np.where(Z > 2, np.nan, Z), labels=Y)
    told("holds nan at row 1")
    (folder / "a.csv").write_text(text(columns("x_")))
    told("has no columns logit_... or score_..., one for each label", "a.csv")
    told("has no columns 'is_'...", "a.csv", labels="is_")
    (folder / "a.csv").write_text(text(columns(order=(0,))))
    told("logits are there for the labels 'cat' and 'dog', and targets for 'cat'", "a.csv")
    (folder / "a.csv").write_text(text(columns()))
    told("'label_cat' cannot be a logit and a target", "a.csv", columns=["l*_cat"])
    (folder / "a.csv").write_text("1,2,1,0\n")
    told("has no header", "a.csv")


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
@pytest.mark.parametrize("names", [None, NAMES, ("7", "id")])
def test_what_is_written_is_read_again(folder, kind, names):
    p = 1 / (1 + np.exp(-Z))
    options = {"shape": p.shape, "class_names": names}
    hm.io.write(f"a.{kind}", [p[:3], p[3:]], labels=Y, **options)
    found = hm.io.read(f"a.{kind}", input="probabilities", multilabel=True)
    np.testing.assert_allclose(found.logits, Z, rtol=1e-13)
    np.testing.assert_array_equal(found.labels, Y)
    assert found.class_names == (names or (None if kind == "npz" else ("0", "1")))
    hm.io.write(f"b.{kind}", [p], multilabel=True, **options)
    alone = hm.io.read(f"b.{kind}", input="probabilities", multilabel=True)
    assert alone.labels is None
    np.testing.assert_array_equal(alone.logits, found.logits)
    with pytest.raises(ValueError, match="must be 0 or 1 for each of 4 rows and 2 labels"):
        hm.io.write("c.csv", [p], labels=2 * Y, **options)
