"""Classifiers and the calibrators of their outputs, with scikit-learn's conventions."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import check_cv
    from sklearn.utils import _safe_indexing, column_or_1d, get_tags, indexable
    from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        has_fit_parameter,
        validate_data,
    )
except ImportError:
    raise ImportError('calibrators need scikit-learn: pip install "hotmax[calibration]"') from None

import sklearn

from hotmax._core.arrays import Array, refuse_masked
from hotmax.calibration.calibrated_source import Calibrate
from hotmax.calibration.calibrators import Calibrator, TemperatureScaling, calibrator_for

SMALLEST_PROBABILITY = 1e-12  # of a classifier: trees give exact zeros
ENOUGH_ROWS = 10  # to tell scores of pairs of classes by the predictions
FIRST, SECOND = np.array([0, 0, 1]), np.array([1, 2, 2])  # the pairs of three classes


def are_of_pairs(estimator: Any, X: object, scores: Array) -> bool:
    """Whether three scores are of the pairs of three classes, not of the classes.

    A support vector machine says so. Of other classifiers, the predictions are what the pairs vote
    for, more often than the class of the largest score.
    """
    inner = estimator
    while not hasattr(inner, "decision_function_shape"):
        if hasattr(inner, "best_estimator_"):
            inner = inner.best_estimator_
        elif hasattr(inner, "steps"):
            inner = inner.steps[-1][1]
        else:
            break
    else:
        return bool(inner.decision_function_shape == "ovo")
    if len(scores) < ENOUGH_ROWS:
        return False
    votes = np.zeros(scores.shape)
    for pair in range(3):
        winner = np.where(scores[:, pair] > 0, FIRST[pair], SECOND[pair])
        votes[np.arange(len(scores)), winner] += 1
    predicted, classes = np.asarray(estimator.predict(X)), np.asarray(estimator.classes_)
    by_pairs = (classes[votes.argmax(1)] == predicted).sum()
    return bool(by_pairs > (classes[scores.argmax(1)] == predicted).sum())


def outputs_of(estimator: Any, X: object) -> tuple[Array, str]:
    """(logits or probabilities of a fitted classifier, which of them)."""
    refuse_masked(X, "X")  # which scikit-learn reads through
    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X))
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        classes, columns = len(estimator.classes_), scores.shape[1]
        if columns == classes and not (classes == 3 and are_of_pairs(estimator, X, scores)):
            return scores, "logits"
    if hasattr(estimator, "predict_proba"):
        p = np.asarray(estimator.predict_proba(X), np.float64)
        return np.maximum(p, SMALLEST_PROBABILITY), "probabilities"
    if hasattr(estimator, "decision_function"):
        raise ValueError(
            f"the decision_function of {type(estimator).__name__} must have one score for each of "
            f"the {classes} classes, got {columns} scores, as of pairs of classes: choose "
            'decision_function_shape="ovr", or an estimator with predict_proba'
        )
    raise TypeError(
        "estimator must be a fitted classifier with decision_function or predict_proba, got "
        f"{type(estimator).__name__}"
    )


class CalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier and the calibrator of its outputs.

    `calibrate` makes one of a fitted classifier and data that it has not seen. `fit` needs no such
    data: the calibrator is fitted to the outputs of cross-validation, and the classifier then to
    all rows.

    Args:
        estimator: A classifier with decision_function (taken as logits) or predict_proba;
            LogisticRegression if there is none.
        calibrator: A Calibrator; TemperatureScaling if there is none. If it is fitted, so is the
            estimator, and the two are joined without `fit`: what the estimator gives becomes what
            the calibrator takes, logits or probabilities.
        cv: The folds of `fit`: a number, or a splitter of scikit-learn that tests each row once.

    After `fit`: `estimator_`, `calibrator_`, `classes_`, `n_features_in_`.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> from sklearn.naive_bayes import GaussianNB
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y = np.where(X[:, 0] + rng.logistic(size=300) > 0, "yes", "no")
        >>> model = hm.calibration.CalibratedClassifier(GaussianNB()).fit(X, y)
        >>> model.predict_proba(X[:2]).shape, model.classes_.tolist()
        ((2, 2), ['no', 'yes'])
    """

    def __init__(self, estimator: Any = None, calibrator: Any = None, *, cv: Any = 5) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.cv = cv

    def _model(self) -> Any:
        """The classifier that is fitted: without one, scikit-learn's plainest."""
        return LogisticRegression() if self.estimator is None else self.estimator

    def fit(
        self, X: object, y: object, sample_weight: object = None, **fit_params: Any
    ) -> CalibratedClassifier:
        """Fit the calibrator to outputs of cross-validation, and the classifier to all rows.

        Args:
            X, y: Data and labels.
            sample_weight: The weight of each row, for the calibrator, and for the classifier if it
                takes weights.
            **fit_params: Passed to the `fit` of the classifier, and by metadata routing, where that
                is enabled, to the splitter.
        """
        refuse_masked(X, "X")
        refuse_masked(y, "y")
        refuse_masked(sample_weight, "sample_weight")
        X, y = indexable(X, y)
        validate_data(self, X, skip_check_array=True)
        check_classification_targets(y)
        labels = column_or_1d(y, warn=True)
        classes, index = np.unique(labels, return_inverse=True)
        if classes.size < 2:
            raise ValueError(f"y must hold 2 classes at least, got one class: {classes.tolist()}")
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        for_model, for_split = self._routed(weights, fit_params)
        splitter = check_cv(self.cv, labels, classifier=True)
        outputs, kind = self._held_out_outputs(
            X, labels, classes, splitter.split(X, labels, **for_split), for_model
        )
        calibrator = TemperatureScaling() if self.calibrator is None else clone(self.calibrator)
        calibrator.set_params(input=kind)
        self.calibrator_ = calibrator.fit(outputs, index, weights)
        self.estimator_ = clone(self._model()).fit(X, labels, **for_model)
        return self

    def _routed(
        self, sample_weight: object, fit_params: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What goes to the classifier, and to the splitter."""
        if sklearn.get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            return dict(routed.estimator.fit), dict(routed.splitter.split)
        for_model = dict(fit_params)
        if sample_weight is not None and has_fit_parameter(self._model(), "sample_weight"):
            for_model["sample_weight"] = sample_weight
        return for_model, {}

    def _held_out_outputs(
        self, X: Any, labels: Array, classes: Array, splits: Any, for_model: dict[str, Any]
    ) -> tuple[Array, str]:
        """What the classifier gives for each row, fitted to others; logits or probabilities."""
        outputs, kind = np.full((labels.size, classes.size), np.nan), ""
        folds, times = list(splits), np.zeros(labels.size, np.int64)
        for _, test in folds:
            np.add.at(times, test, 1)
        if (times == 0).any():
            raise ValueError(f"cv must test each row, got none for row {int(times.argmin())}")
        if (times > 1).any():
            row = int(times.argmax())
            raise ValueError(
                f"cv must test each row once, got {times[row]} times for row {row}: choose a "
                "splitter that does not repeat, such as StratifiedKFold"
            )
        for train, test in folds:
            part = {
                name: entries_of(value, train, labels.size) for name, value in for_model.items()
            }
            model = clone(self._model()).fit(_safe_indexing(X, train), labels[train], **part)
            found, kind = outputs_of(model, _safe_indexing(X, test))
            if len(model.classes_) != classes.size:
                raise ValueError(
                    f"cv: a fold has {len(model.classes_)} of {classes.size} classes to fit to: "
                    "fewer folds, or more rows of each class"
                )
            outputs[test] = found
        if kind == "probabilities":
            outputs /= outputs.sum(1, keepdims=True)
        return outputs, kind

    def get_metadata_routing(self) -> Any:
        """What of `fit`'s arguments goes where: to the classifier and to the splitter."""
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(
            estimator=self._model(), method_mapping=MethodMapping().add(caller="fit", callee="fit")
        )
        return router.add(
            splitter=check_cv(self.cv, classifier=True),
            method_mapping=MethodMapping().add(caller="fit", callee="split"),
        )

    def __sklearn_tags__(self) -> Any:
        tags, of_model = super().__sklearn_tags__(), get_tags(self._model())
        tags.input_tags.sparse = of_model.input_tags.sparse
        tags.input_tags.allow_nan = of_model.input_tags.allow_nan
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_") or hasattr(self.calibrator, "parameters_")

    def _parts(self) -> tuple[Any, Calibrator]:
        """The fitted classifier and its calibrator."""
        check_is_fitted(self)
        if hasattr(self, "estimator_"):
            return self.estimator_, self.calibrator_
        return self.estimator, self.calibrator

    @property
    def classes_(self) -> Array:
        """The classes, in the order of the columns of probabilities."""
        found = getattr(self, "estimator_", self.estimator)
        if not hasattr(found, "classes_"):
            raise AttributeError("classes_ is there after fit")
        return np.asarray(found.classes_)

    def predict_proba(self, X: object) -> Array:
        """Calibrated probabilities of the classes."""
        estimator, calibrator = self._parts()
        outputs, kind = outputs_of(estimator, X)
        if hasattr(self, "n_features_in_"):
            validate_data(self, X, reset=False, skip_check_array=True)
        return Calibrate(calibrator, kind)(outputs)

    def predict(self, X: object) -> Array:
        """The likeliest class of each row, after calibration."""
        best = self.predict_proba(X).argmax(1)
        chosen: Array = self.classes_[best]
        return chosen

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the calibrator as JSON, as `Calibrator.save` does; the estimator is not written.

        Save the estimator by its own means, and join the two again with
        `CalibratedClassifier(estimator, load(path))`.
        """
        self._parts()[1].save(path, force=force)


def entries_of(value: Any, index: Array, rows: int) -> Any:
    """The rows of an argument of `fit` that has one entry for each; others as they are."""
    if hasattr(value, "__len__") and not isinstance(value, str) and len(value) == rows:
        return _safe_indexing(value, index)
    return value


def calibrate(
    estimator: Any,
    X: object,
    y: object,
    *,
    method: str = "temperature",
    sample_weight: object = None,
) -> CalibratedClassifier:
    """Calibrate a fitted scikit-learn classifier on data that it has not seen.

    Args:
        estimator: A fitted classifier with decision_function (taken as logits) or predict_proba,
            whose probabilities count as 1e-12 at least: no loss is infinite.
        X, y: Data and labels that it was not fitted to.
        method: As in `Calibrator`.
        sample_weight: The weight of each row.

    Returns:
        A CalibratedClassifier with predict_proba and predict.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> from sklearn.linear_model import LogisticRegression
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y = np.where(X[:, 0] + rng.logistic(size=300) > 0, "yes", "no")
        >>> model = LogisticRegression().fit(X[:100], y[:100])
        >>> calibrated = hm.calibration.calibrate(model, X[100:], y[100:])
        >>> calibrated.predict(X[:3]).tolist() == model.predict(X[:3]).tolist()
        True
    """
    outputs, kind = outputs_of(estimator, X)
    classes = np.asarray(estimator.classes_)
    refuse_masked(y, "y")
    labels = np.asarray(y)
    known = np.isin(labels, classes)
    if not known.all():
        stranger = labels[int(np.argmin(known))]
        raise ValueError(f"y holds {stranger!r}, which the estimator has not seen")
    order = np.argsort(classes)
    index = order[np.searchsorted(classes, labels, sorter=order)]
    calibrator = calibrator_for(method, kind).fit(outputs, index, sample_weight)
    return CalibratedClassifier(estimator, calibrator)
