"""Columns of a table that are no logits never become classes in silence."""

from __future__ import annotations

import numpy as np
import pytest

import hotmax as hm


def table(path, header, rows):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    "name", ["id", "Index", "pred", "prediction", "y_pred", "fold", "split", "Unnamed: 0"]
)
def test_what_is_no_logit_is_refused(tmp_path, name):
    file = table(tmp_path / "a.csv", f"{name},cat,dog,label", ["1,0.5,1.5,0", "2,2.5,0.25,1"])
    with pytest.raises(
        ValueError, match=r"would be a class.*Logits: 'cat' and 'dog'; label: 'label'"
    ):
        hm.io.read(file)


def test_a_prefix_says_it_outright(tmp_path):
    file = table(tmp_path / "a.csv", "id,z_cat,z_dog,label", ["1,0.5,1.5,0", "2,2.5,0.25,1"])
    found = hm.io.read(file, logits="z_")
    assert found.class_names == ("cat", "dog")
    assert found.logits.shape == (2, 2)


@pytest.mark.parametrize("name", ["y_true", "true_label", "True_Class"])
def test_names_of_labels(tmp_path, name):
    file = table(tmp_path / "a.csv", f"cat,dog,{name}", ["0.5,1.5,0", "2.5,0.25,1"])
    found = hm.io.read(file)
    assert found.logits.shape == (2, 2)
    assert found.labels.tolist() == [0, 1]


def test_two_labels_are_ambiguous(tmp_path):
    file = table(tmp_path / "a.csv", "cat,dog,y_true,label", ["0.5,1.5,0,1", "2.5,0.25,1,1"])
    with pytest.raises(ValueError, match="'y_true' and 'label' may all be the label"):
        hm.io.read(file)


def test_labels_that_count_from_1(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.eye(3) + 0.5, labels=np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="these run from 1 to 3, so they count from 1: subtract 1"):
        hm.io.read(tmp_path / "a.npz")
