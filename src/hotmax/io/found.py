"""What a file holds, as it was found: not yet checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hotmax._core.arrays import Array
from hotmax._core.class_labels import Labels

LABEL_NAMES = ("labels", "label", "y", "target", "targets", "y_true", "true_label", "true_class")
# Columns of a table that people put beside logits, and that are none.
OTHER_NAMES = (
    *("id", "ids", "index", "idx", "row", "unnamed: 0", "uuid", "key", "fold", "split"),
    *("pred", "preds", "prediction", "predictions", "predicted", "y_pred", "y_hat", "argmax"),
    *("predicted_label", "predicted_class", "pred_label", "pred_class", "correct", "confidence"),
    *("score", "scores", "sample", "epoch", "step", "entropy", "margin", "gt", "ground_truth"),
    *("class", "true", "truth", "labels_true", "label_true"),
    *("weight", "weights", "sample_weight", "loss", "nll", "timestamp", "group", "groups"),
)
OTHER_ENDS = ("_id", "_idx", "_index")
LAST, NONE = "last", "none"  # words for `labels` that are no names


@dataclass(frozen=True)
class Wanted:
    """What a caller asks for by name; None: the usual names."""

    logits: str | None
    labels: str | None
    probabilities: bool
    least_mapped: int | None = None  # bytes from which an array stays in its file; None: the usual
    columns: tuple[str, ...] | None = None  # of a table, outright: names, patterns or places


@dataclass(frozen=True)
class Found:
    """Logits, and labels and names where the file has them."""

    logits: Array
    what: str  # the logits, as an error calls them
    labels: Labels | None
    label_source: str | None
    class_names: tuple[str, ...] | None
    place: Callable[[int], str]  # of a row
    logit_source: str | None = None  # what was taken for logits, if `what` does not say it


def row_place(row: int) -> str:
    return f"row {row}"
