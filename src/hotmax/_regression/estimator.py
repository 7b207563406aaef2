"""SoftmaxRegression, with scikit-learn's conventions."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ImportError(
        'SoftmaxRegression needs scikit-learn and SciPy: pip install "hotmax[regression]"'
    ) from None

from hotmax._core.arrays import FLOAT64, Array, refuse_masked
from hotmax._core.checks import as_real
from hotmax._regression.inputs import base_number, check_options, read_data, temperature_of
from hotmax._regression.objective import Data, Objective, Passes, check_columns
from hotmax._regression.separation import separation_of
from hotmax._regression.solver import Solution, one_thread_each, solve
from hotmax._regression.summary import (
    INTERCEPT,
    Inference,
    RegressionSummary,
    infer,
    summarise,
)
from hotmax._regression.targets import target_probabilities
from hotmax._softmax.functions import log_softmax, softmax

KEPT_COEFFICIENTS = 200  # coefficients up to which a fit takes their covariance along


class SoftmaxRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Softmax regression (multinomial logistic regression): p = softmax((W x + b) / T).

    It minimises the cross entropy of all rows plus |W|^2 / (2 C); b is not penalised. Adding the
    same vector to all rows of W changes no probability: the coefficients are those whose mean over
    the classes is 0. For three classes or more it is the optimum of scikit-learn's
    LogisticRegression(C=C). For two classes it is logistic regression with the coefficients
    coef_[1] - coef_[0], and the optimum of LogisticRegression(C=2 * C): the two halves w / 2 and
    -w / 2 cost |w|^2 / 4, where scikit-learn's single w costs |w|^2 / 2.

    Args:
        C: The inverse of the strength of the penalty; inf or None for none.
        fit_intercept: Whether there is a b.
        temperature: T: logits are divided by it, in the fit and in prediction. A fit at T and C has
            T times the coefficients of one at 1 and C / T^2.
        label_smoothing: s: the targets are (1 - s) y + s / classes.
        class_weight: None, a dict {class: weight}, or "balanced" for weights inversely
            proportional to how often classes come up. A row weighs what its class does; with soft
            targets, the mean over its target.
        solver: "lbfgs" or "newton-cg".
        tol: The search ends when no entry of the gradient of the objective, divided by the weight
            of all rows, is larger: as in scikit-learn.
        max_iter: Steps at most.
        warm_start: Start from the coefficients of the last fit.
        verbose: 1 tells the progress on the standard error.

    After `fit`: `coef_` (classes, features) and `intercept_` (classes,), for two classes as well;
    `classes_`, `n_features_in_`, `feature_names_in_`; `converged_`, `n_iter_`, `n_evaluations_`,
    `gradient_norm_` and `objective_` (the minimum, over the weight of all rows). A search that does
    not converge says so with scikit-learn's ConvergenceWarning. So does a fit without a penalty to
    classes that X separates, whose coefficients would grow without bound: `separation_` is then
    "complete" or "quasi", else None. A linear program finds it out, for up to 4,194,304 entries;
    beyond, only complete separation is seen.

    X may be a NumPy array, a data frame or a sparse matrix, which is never made dense. Whatever its
    type and the solver's way, the gradient at the end is worked out in float64.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y = (X @ [[1.0, 0.0, -1.0], [0.0, 2.0, -2.0]] + rng.gumbel(size=(300, 3))).argmax(1)
        >>> model = hm.SoftmaxRegression().fit(X, y)
        >>> model.converged_, model.coef_.shape
        (True, (3, 2))
        >>> model.predict_proba([[1.0, 1.0]]).round(2)
        array([[0.25, 0.75, 0.01]])

    Classes that are Gaussians with means m and one covariance S have exactly this form, with
    W = S^-1 m and b = log(share) - m S^-1 m / 2; a fit finds them again:
        >>> means = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
        >>> S = np.array([[1.0, 0.5], [0.5, 1.0]])
        >>> y = rng.integers(0, 3, 30000)
        >>> X = means[y] + rng.multivariate_normal([0, 0], S, 30000)
        >>> model = hm.SoftmaxRegression(C=np.inf).fit(X, y)
        >>> (model.coef_ - model.coef_[0]).round(1)
        array([[ 0. ,  0. ],
               [ 2.7, -1.3],
               [-0.7,  1.3]])
        >>> (np.linalg.inv(S) @ means.T).T.round(1)
        array([[ 0. ,  0. ],
               [ 2.7, -1.3],
               [-0.7,  1.3]])
    """

    def __init__(
        self,
        C: float | None = 1.0,
        *,
        fit_intercept: bool = True,
        temperature: float = 1.0,
        label_smoothing: float = 0.0,
        class_weight: Mapping[Any, float] | str | None = None,
        solver: str = "lbfgs",
        tol: float = 1e-6,
        max_iter: int = 500,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.temperature = temperature
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """An error or Ctrl-C leaves the model as it was."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    # --- fitting ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SoftmaxRegression:
        """Fit to rows X and their targets.

        Args:
            X: (rows, features).
            y: Labels of any kind, (rows,); or probabilities, (rows, classes): soft targets, whose
                classes are 0, 1, ...
            sample_weight: The weight of each row.

        Returns:
            The model.
        """
        check_options(self)
        with self._all_or_nothing():
            data, classes = read_data(self, X, y, sample_weight, None, reset=True)
            price = self._price(data)
            start = np.zeros(data.shape)
            if self.warm_start and hasattr(self, "coef_"):
                start = self._start(data.shape)
            found = self._solve(Objective(data, price), start)
            self._keep(found, data, classes)
            with one_thread_each():
                curvatures = Passes(data).curvatures(found.theta)
                self._inference = None
                if (data.classes - 1) * data.shape[1] <= KEPT_COEFFICIENTS:
                    self._inference = infer(data, found.theta, price)
            self._precision = curvatures + price * data.total
            self.separation_: str | None = None
            if not price.any():
                self._look_for_separation(data, found.theta)
        return self

    def _look_for_separation(self, data: Data, theta: Array) -> None:
        found = separation_of(data, theta)
        if found is not None:
            self.separation_ = "complete" if found.complete else "quasi"
            warnings.warn(f"SoftmaxRegression: {found}", ConvergenceWarning, stacklevel=3)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> SoftmaxRegression:
        """Take in more rows, without those that came before.

        What earlier rows say is kept as a normal distribution of each coefficient: its mean is the
        coefficient, its precision the curvature of the likelihood (Laplace's approximation, without
        correlations). The new rows are fitted with that as their prior. A first call does what
        `fit` does; later ones come near to a fit to all rows together. Rows that are given again
        count again.

        Args:
            X, y, sample_weight: As in `fit`.
            classes: All classes that will ever come: needed at the first call with labels.

        Returns:
            The model.
        """
        check_options(self)
        first = not hasattr(self, "coef_")
        with self._all_or_nothing():
            known = None if first else self.classes_
            if classes is not None:
                refuse_masked(classes, "classes")
                given = np.unique(np.asarray(classes))
                if known is not None and not np.array_equal(given, known):
                    raise ValueError(f"classes must be those of the first call, {known}")
                known = given
            elif first and np.ndim(y) < 2:
                raise ValueError("classes must be passed on the first call to partial_fit")
            data, known = read_data(self, X, y, sample_weight, known, reset=first)
            if first:
                precision, centre = self._price(data) * data.total, np.zeros(data.shape)
            else:
                precision, centre = self._precision, self._start(data.shape)
            objective = Objective(data, precision / data.total, centre)
            found = self._solve(objective, centre)
            self._keep(found, data, known)
            with one_thread_each():
                self._precision = precision + Passes(data).curvatures(found.theta)
            self._inference = None
        return self

    def _price(self, data: Data) -> Array:
        """What the square of each column of theta costs, twice; the intercept costs nothing."""
        strength = 0.0 if self.C is None else 1.0 / float(self.C)
        price = np.full(data.shape[1], strength / data.total)
        if data.intercept:
            price[-1] = 0.0
        return price

    def _start(self, shape: tuple[int, int]) -> Array:
        theta = np.array(self.coef_, FLOAT64)
        if self.fit_intercept:
            theta = np.concatenate([theta, np.array(self.intercept_, FLOAT64)[:, None]], axis=1)
        if theta.shape != shape:
            raise ValueError(
                f"the coefficients to start from have shape {theta.shape}, and this data needs "
                f"{shape}: set warm_start=False, or fit the model again"
            )
        return theta

    def _solve(self, objective: Objective, start: Array) -> Solution:
        found = solve(
            objective, start, self.solver, float(self.tol), int(self.max_iter), int(self.verbose)
        )
        if not found.converged:
            warnings.warn(
                f"SoftmaxRegression ({self.solver}) did not converge in {found.iterations} "
                f"iterations: {found.message}; the gradient is {found.gradient_norm:.2e}, and tol "
                f"{self.tol:.0e}. Increase max_iter, scale the columns of X, or lower C.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return found

    def _keep(self, found: Solution, data: Data, classes: Array) -> None:
        features = data.x.shape[1]
        self.classes_ = classes
        self.coef_ = found.theta[:, :features].astype(data.x.dtype)
        self.intercept_ = np.zeros(data.classes, data.x.dtype)
        if data.intercept:
            self.intercept_ = found.theta[:, features].astype(data.x.dtype)
        self.n_iter_ = found.iterations
        self.n_evaluations_ = found.evaluations
        self.converged_ = found.converged
        self.gradient_norm_ = found.gradient_norm
        self.objective_ = found.value

    # --- prediction ---------------------------------------------------------------------------

    def _logits(self, X: object) -> Array:
        check_is_fitted(self)
        refuse_masked(X, "X")
        x = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[FLOAT64, np.float32])
        check_columns(x)
        z: Array = np.asarray(x @ self.coef_.T)
        z += self.intercept_
        return z

    def decision_function(self, X: object) -> Array:
        """The logits W x + b, not yet divided by T: (rows, classes).

        For two classes, as everywhere in scikit-learn, the difference of the second to the first:
        (rows,).
        """
        z = self._logits(X)
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z

    def predict_proba(self, X: object) -> Array:
        """softmax((W x + b) / T): (rows, classes)."""
        p: Array = softmax(self._logits(X), temperature=temperature_of(self))
        return p

    def predict_log_proba(self, X: object) -> Array:
        """Its logarithm, with all digits of small and of nearly certain probabilities."""
        logs: Array = log_softmax(self._logits(X), temperature=temperature_of(self))
        return logs

    def predict(self, X: object) -> Array:
        """The likeliest class of each row."""
        predicted = self._logits(X).argmax(axis=1)
        chosen: Array = self.classes_[predicted]
        return chosen

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted; with soft targets, the mean target there."""
        refuse_masked(y, "y")
        refuse_masked(sample_weight, "sample_weight")
        if np.ndim(y) < 2 or np.shape(y)[1] == 1:
            return float(super().score(X, y, sample_weight))
        probabilities = target_probabilities(np.asarray(y))
        chosen = self._logits(X).argmax(axis=1)
        hits = probabilities[np.arange(chosen.size), chosen]
        return float(np.average(hits, weights=sample_weight))

    # --- inference ----------------------------------------------------------------------------

    def summary(
        self,
        X: object = None,
        y: object = None,
        sample_weight: object = None,
        *,
        base: object = "first",
        level: float = 0.95,
    ) -> RegressionSummary:
        """Standard errors, z-values, p-values, intervals and odds ratios of the coefficients.

        Args:
            X, y, sample_weight: What the model was fitted to. A fit of up to 200 free
                coefficients, (classes - 1) * (features + 1), has taken along what is needed, and
                they may be left out.
            base: The class that coefficients are differences to, "first" for classes_[0], or None
                for centred coefficients, those of `coef_`.
            level: Of the intervals.

        Returns:
            A RegressionSummary: print it, or look at its arrays. With a penalty the standard errors
            are those of the posterior that it is the prior of (Laplace's approximation).

        Example:
            >>> import numpy as np, hotmax as hm
            >>> rng = np.random.default_rng(0)
            >>> X = rng.normal(size=(200, 1))
            >>> y = np.where(X[:, 0] + rng.logistic(size=200) > 0, "yes", "no")
            >>> print(hm.SoftmaxRegression(C=np.inf).fit(X, y).summary())
            200 rows, log-likelihood -117.631 (of the frequencies -137.628), pseudo R2 0.1453
            <BLANKLINE>
            yes against no
                         coef  std err      z  P>|z|    2.5 %  97.5 %  odds ratio
            ---------------------------------------------------------------------
            x0         1.0707   0.1929  5.551  0.000   0.6927  1.4487       2.917
            intercept  0.2204   0.1577  1.397  0.162  -0.0888  0.5295       1.247
        """
        check_is_fitted(self)
        if not 0.0 < as_real(level, "level") < 1.0:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}")
        number = base_number(base, self.classes_)
        inference: Inference | None = getattr(self, "_inference", None)
        theta = self._start((self.classes_.size, self.n_features_in_ + bool(self.fit_intercept)))
        if X is not None:
            if y is None:
                raise TypeError("y must be given with X")
            data, _ = read_data(self, X, y, sample_weight, self.classes_, reset=False)
            with one_thread_each():
                inference = infer(data, theta, self._price(data))
        elif inference is None:
            raise ValueError(
                "X and y must be given: the covariance of so many coefficients was not kept"
            )
        names = getattr(self, "feature_names_in_", None)
        named = [f"x{i}" for i in range(self.n_features_in_)] if names is None else list(names)
        if self.fit_intercept:
            named.append(INTERCEPT)
        notes = []
        if not self.converged_:
            notes.append("the fit did NOT CONVERGE: all of this is of where it stopped")
        if self.C is not None and float(self.C) < math.inf:
            notes.append(f"penalised, C = {self.C:g}: coefficients are shrunk towards 0")
        return summarise(
            inference,
            theta,
            self.classes_,
            named,
            number,
            float(level),
            temperature_of(self),
            notes,
        )
