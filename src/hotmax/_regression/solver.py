"""The minimum of an objective by SciPy's L-BFGS or Newton-CG, and what is known about it."""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from hotmax._core.arrays import FLOAT32, FLOAT64, Array
from hotmax._core.blas_threads import one_thread_each as one_thread_each
from hotmax._regression.objective import Objective
from hotmax._regression.whitening import Coordinates, whiten

SOLVERS = ("lbfgs", "newton-cg")
SURE = 1e-3  # of the gradient: its smallest part that float32 has a few digits of
RESTARTS = 4  # after a line search that found nothing
CONJUGATE = 100  # products with the Hessian for one of Newton's last steps


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a solver ended.

    Attributes:
        theta: (classes, features + 1), centred over the classes.
        value: The objective there.
        gradient_norm: The largest entry of its gradient, without sign.
        iterations, evaluations: Steps, and visits to all rows.
        converged: gradient_norm <= tol.
        message: Why it ended.
    """

    theta: Array
    value: float
    gradient_norm: float
    iterations: int
    evaluations: int
    converged: bool
    message: str


class ProgressLine:
    """Progress on the standard error: a line that changes on a terminal, else one a second."""

    def __init__(self, verbose: int, tol: float, max_iter: int) -> None:
        self.verbose, self.tol, self.max_iter = verbose, tol, max_iter
        self.last = -np.inf
        self.status: Any = None

    def __enter__(self) -> ProgressLine:
        if self.verbose and sys.stderr.isatty():
            try:
                from rich.console import Console
            except ImportError:
                return self
            self.status = Console(stderr=True).status("softmax regression")
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

    def step(self, iteration: int, value: float, norm: float) -> None:
        now = time.monotonic()
        if not self.verbose or now - self.last < (0.1 if self.status else 1.0):
            return
        self.last = now
        self.line(f"iteration {iteration} of up to {self.max_iter}", value, norm)

    def line(self, what: str, value: float, norm: float) -> None:
        text = f"{what}: objective {value:.8g}, gradient {norm:.2e} (tol {self.tol:.0e})"
        if self.status is not None:
            self.status.update(text)
        elif self.verbose:
            print(text, file=sys.stderr, flush=True)


class Search:
    """One search for the minimum, in whitened coordinates from `start` on."""

    def __init__(self, objective: Objective, start: Array, tol: float, max_iter: int) -> None:
        self.objective, self.start, self.tol, self.max_iter = objective, start, tol, max_iter
        self.coordinates: Coordinates = whiten(objective.data, objective.price)
        self.evaluations = self.iterations = 0
        self.evaluate(np.zeros(start.size))
        self.accept()

    def theta(self, v: Array) -> Array:
        return self.start + self.coordinates.theta(v.reshape(self.start.shape))

    def evaluate(self, v: Array) -> tuple[float, Array]:
        theta = self.theta(v)
        value, gradient = self.objective.at(theta)
        self.evaluations += 1
        norm = float(np.abs(gradient).max())
        self.tried = (value, norm if np.isfinite(value) else np.inf, theta)
        return value, self.coordinates.gradient(gradient).ravel()

    def curve(self, v: Array, direction: Array) -> Array:
        way = self.coordinates.theta(direction.reshape(self.start.shape))
        product = self.objective.product(self.theta(v), way)
        self.evaluations += 1
        return self.coordinates.gradient(product).ravel()

    def accept(self) -> None:
        """The point that was evaluated last is the new one."""
        self.value, self.norm, self.reached = self.tried

    def run(self, solver: str, report: ProgressLine) -> str:
        """Search until the gradient is within tol or nothing is gained; says why it ended."""

        def step(intermediate_result: Any) -> None:
            self.iterations += 1
            if intermediate_result.fun != self.tried[0]:  # the line search looked further
                self.evaluate(intermediate_result.x)
            self.accept()
            report.step(self.iterations, self.value, self.norm)
            if self.norm <= self.tol:
                raise StopIteration

        left = self.max_iter - self.iterations
        options: dict[str, Any] = {"maxiter": left}
        if solver == "lbfgs":
            options |= {"maxfun": 100 * left, "gtol": 0.0, "ftol": 0.0, "maxls": 50}
        else:
            options |= {"xtol": 0.0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what went wrong is told below
            done = minimize(
                self.evaluate,
                np.zeros(self.start.size),
                jac=True,
                hessp=None if solver == "lbfgs" else self.curve,
                method="L-BFGS-B" if solver == "lbfgs" else "Newton-CG",
                callback=step,
                options=options,
            )
        self.start = self.reached
        return str(done.message)

    def polish(self) -> None:
        """Newton's steps as long as they shorten the gradient, whatever becomes of the value.

        Values that a line search compares no longer differ near the minimum; gradients still do.
        """
        here = np.zeros(self.start.size)
        curve = LinearOperator((here.size, here.size), matvec=lambda v: self.curve(here, v))
        while self.norm > self.tol and self.iterations < self.max_iter:
            gradient = self.evaluate(here)[1]
            with np.errstate(all="ignore"):  # a direction without curvature gives no step
                enough = min(max(0.2 * self.tol / self.norm, 1e-3), 0.1)
                step, _ = cg(curve, -gradient, rtol=enough, maxiter=CONJUGATE)
            if not np.isfinite(step).all():
                return
            self.evaluate(step)
            if not self.tried[1] < self.norm:
                return
            self.iterations += 1
            self.accept()
            self.start = self.reached


def solve(
    objective: Objective, start: Array, solver: str, tol: float, max_iter: int, verbose: int
) -> Solution:
    """The minimum, searched from `start` on.

    L-BFGS has many rows multiplied in float32, in which a visit takes two thirds of the time, until
    the gradient is down to what that can tell for sure; float64 goes on, and has the last word.
    """
    with ProgressLine(verbose, tol, max_iter) as report, one_thread_each():
        search = Search(objective, start, tol, max_iter)
        in_float32 = solver == "lbfgs" and objective.data.is_large and search.coordinates.is_mild
        if in_float32 and search.norm > tol:
            search.tol = max(tol * (1.0 - SURE), search.norm * SURE)
            objective.compute_in(FLOAT32)
            search.run("lbfgs", report)
            objective.compute_in(FLOAT64)
            search.tol = tol
            search.evaluate(np.zeros(start.size))
            search.accept()
        message = "the gradient is within tol at the start"
        for _ in range(RESTARTS):
            if search.norm <= tol or search.iterations >= max_iter:
                break
            before = search.value, search.norm
            message = search.run(solver, report)
            search.polish()
            if (search.value, search.norm) == before:
                break
        if search.norm <= tol:
            message = "the gradient is within tol"
        elif search.iterations >= max_iter:
            message = "max_iter is reached"
        theta = search.reached - search.reached.mean(axis=0)
        report.line(message, search.value, search.norm)
    return Solution(
        theta,
        search.value,
        search.norm,
        search.iterations,
        search.evaluations,
        search.norm <= tol,
        message,
    )
