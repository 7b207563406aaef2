"""A sampler with a memory: steps in the order of a library, and where each request is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from hotmax._backends.protocol import from_numpy, to_numpy
from hotmax._core.arrays import Array, Axis
from hotmax._core.checks import as_bool, as_seed
from hotmax._core.rows import RowPlan
from hotmax._kernels.numeric.arithmetic import LARGEST_FLOAT64
from hotmax._sampling.drawing import NO_MU, Draw, edits_of, plan_rows
from hotmax._sampling.edits import RowEdits
from hotmax._sampling.penalties import penalize
from hotmax._sampling.requests import Request, joined, mu_at_start, program_of
from hotmax._sampling.sample import check_ties
from hotmax._sampling.seeds import REQUEST_STEP, as_keys, as_seeds
from hotmax._sampling.settings import Settings, as_settings, decoded, encoded
from hotmax._sampling.steps import ORDERS, one_for_each_row, program

SAMPLER_FORMAT = "hotmax sampler"
SAMPLER_VERSION = 1


class Sampler:
    """Draws tokens step by step, as a library of the field would: the same order, the same ties.

    "hf" (transformers): temperature, top_k, top_p, min_p, typical_p, epsilon, eta.
    "vllm": temperature, min_p, top_k, top_p.
    "llama.cpp": top_n_sigma, top_k, typical_p, top_p, min_p, xtc, and temperature last, so that the
    filters see probabilities at temperature 1.

    In all of them bias and then penalties come first. Ties: in hf and vllm top_k keeps all that tie
    with the k-th, top_p drops the first of those that tie at its cut, and typical_p keeps all; in
    llama.cpp each keeps just as many as it needs, the first ones. At least one class always stays.
    A step that a library lacks follows its own, and top_n_sigma comes before top_k.

    A call with `requests` draws the next token of each request that it names, a row for each. A
    draw is a function of the request's seed and its position, so a request draws the same tokens
    alone and in any batch, in any row. Its seed is `add`'s, or follows from the sampler's seed and
    the name of the request. A call without `requests` is a batch of its own: row by row, call by
    call.

    Args:
        steps: What to do, by name: temperature (0 to inf), top_k, top_p, min_p, top_a, typical_p,
            epsilon, eta and top_n_sigma as in `sample`;
            xtc=(probability, threshold): with that probability, drop all classes of at least that
            threshold but the least likely of them;
            mirostat=(surprise, rate): keep classes whose surprise in bits is at most mu, which
            begins at twice the target and learns from each draw (version 2);
            dynamic_temperature=(low, high, exponent): the temperature goes from low to high as
            the entropy goes from 0 to its most;
            repetition, frequency, presence as in `penalize`; bias as in `sample`.
            Each number may be an array with one for each row. None turns a step off. Names of
            other libraries are understood: repetition_penalty, repeat_penalty, frequency_penalty,
            presence_penalty, logit_bias, temp, epsilon_cutoff, eta_cutoff, xtc_probability and
            xtc_threshold, mirostat_tau and mirostat_eta.
        order: "hf", "vllm" or "llama.cpp"; None for the order of `steps`, with the ties of hf.
        seed: As in `sample`; each call takes new numbers from it. None for fresh entropy.
        ties: As in `sample`.
        options: Further steps, as keywords.

    Example:
        >>> import hotmax as hm
        >>> sampler = hm.Sampler(temperature=0.7, top_p=0.9, order="vllm", seed=1)
        >>> logits = [[1.0, 2.0, 3.0, 0.0], [3.0, 2.0, 1.0, 0.0]]
        >>> [sampler(logits).tolist() for _ in range(3)]
        [[2, 0], [2, 0], [1, 0]]
        >>> sampler
        Sampler(order='vllm', temperature=0.7, top_p=0.9)
        >>> sampler.add("b", seed=5, temperature=1.5)
        >>> sampler(logits, requests=["a", "b"]).tolist()
        [2, 1]
        >>> sampler.state("b")
        {'seed': 5, 'step': 1, 'mu': None, 'settings': {'temperature': 1.5}}

    Reference:
        Basu et al., Mirostat, 2021; p-e-w, Exclude Top Choices, 2024 (XTC).
    """

    def __init__(
        self,
        steps: Mapping[str, Any] | None = None,
        *,
        order: str | None = "hf",
        seed: object = None,
        ties: str = "even",
        **options: Any,
    ) -> None:
        if not isinstance(steps, Mapping | None):
            raise TypeError(f"steps must be a dict of names and numbers, got {steps!r}")
        if order is not None and order not in ORDERS:
            raise ValueError(f'order must be "hf", "vllm", "llama.cpp" or None, got {order!r}')
        twice = sorted({*(steps or {})} & {*options})
        if twice:
            raise ValueError(f"{twice[0]} must be given once, in steps or as a keyword")
        self.order = order
        self.settings = as_settings({**(steps or {}), **options})
        self.program = program(self.settings.steps, order)
        self.mu = NO_MU
        self.calls = 0
        self.ties = ties
        self.first_tie = check_ties(ties)
        self._seed = as_keys(seed_of_entropy() if seed is None else to_numpy(seed, "seed"))
        self._requests: dict[Hashable, Request] = {}

    def __repr__(self) -> str:
        steps = "".join(f", {name}={value}" for name, value in self.settings.given.items())
        return f"Sampler(order={self.order!r}{steps})"

    # --- requests -----------------------------------------------------------------------------

    @property
    def requests(self) -> tuple[Hashable, ...]:
        """The names of the requests that are known, in the order in which they came."""
        return tuple(self._requests)

    def add(
        self,
        request: Hashable,
        *,
        seed: int | None = None,
        step: int = 0,
        mu: float | None = None,
        **settings: Any,
    ) -> None:
        """Begin a request, or go on with one, under a name: an int or a str.

        Args:
            request: The name, not yet known.
            seed: An int from 0 to 2**64 - 1; None for one that follows from the sampler's seed and
                the name.
            step: How many tokens have been drawn.
            mu: Where mirostat is; None for its beginning.
            settings: Those that differ from the sampler's, one number each; None turns one off.
        """
        if request in self._requests:
            raise ValueError(f"request {request!r} is already known: remove it first")
        key = self._seed_of(request) if seed is None else seed
        self._requests[request] = self._request(key, step, mu, settings)

    def _request(
        self, seed: int, step: int, mu: float | None, settings: Mapping[str, Any]
    ) -> Request:
        checked = self.settings.replaced(settings) if settings else self.settings
        if checked.is_by_row():
            raise ValueError(
                "requests need settings of one number each: give each request its own in add"
            )
        if self.order is None and {s.name for s in checked.steps} - {
            s.name for s in self.settings.steps
        }:
            raise ValueError("settings must be among the sampler's, if order is None")
        begin = mu_at_start(checked) if mu is None else float(mu)
        return Request(as_seed(seed), int(REQUEST_STEP.check(step)), begin, checked, dict(settings))

    def remove(self, request: Hashable) -> None:
        """Forget a request."""
        self._known(request)
        del self._requests[request]

    def state(self, request: Hashable) -> dict[str, Any]:
        """Where a request is, in types of JSON: `restore` goes on from there."""
        found = self._known(request)
        return {
            "seed": found.seed,
            "step": found.step,
            "mu": found.mu,
            "settings": encoded(found.own),
        }

    def restore(self, request: Hashable, state: Mapping[str, Any]) -> None:
        """Go on with a request where `state` has left it, in this sampler or another like it."""
        wanted = {"seed", "step", "mu", "settings"}
        if not isinstance(state, Mapping) or {*state} != wanted:
            raise ValueError(f"state must have seed, step, mu and settings, got {state!r}")
        settings = {name: decoded(name, value) for name, value in state["settings"].items()}
        held = self._requests.pop(request, None)
        try:
            self.add(request, **{**settings, **{k: state[k] for k in ("seed", "step", "mu")}})
        except BaseException:
            if held is not None:
                self._requests[request] = held
            raise

    def to_json(self) -> str:
        """The sampler and all its requests, as JSON. Names of requests must be ints or strs."""
        return json.dumps(
            {
                "format": SAMPLER_FORMAT,
                "version": SAMPLER_VERSION,
                "order": self.order,
                "ties": self.ties,
                "seed": encoded(self._seed),
                "calls": self.calls,
                "mu": encoded(self.mu),
                "settings": encoded(self.settings.given),
                "requests": [[name, self.state(name)] for name in self._requests],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Sampler:
        """The sampler that `to_json` wrote: every request goes on as if nothing had been."""
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"text must be JSON as to_json writes it: {error}") from None
        if not isinstance(found, dict) or found.get("format") != SAMPLER_FORMAT:
            raise ValueError(
                f'text must be JSON with "format": "{SAMPLER_FORMAT}", as to_json writes it'
            )
        if found.get("version") != SAMPLER_VERSION:
            raise ValueError(
                f"text must have version {SAMPLER_VERSION}, got {found.get('version')!r}"
            )
        names = ("order", "ties", "seed", "calls", "mu", "settings", "requests")
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(f"text must have {missing[0]!r}, as to_json writes it")
        settings = {name: decoded(name, value) for name, value in found["settings"].items()}
        sampler = cls(settings, order=found["order"], seed=found["seed"], ties=found["ties"])
        sampler.calls = int(REQUEST_STEP.check(found["calls"]))
        sampler.mu = np.array(found["mu"], np.float64)
        for name, state in found["requests"]:
            sampler.restore(name, state)
        return sampler

    def _known(self, request: Hashable) -> Request:
        if request not in self._requests:
            raise KeyError(f"request {request!r} is not known")
        return self._requests[request]

    def _seed_of(self, request: Hashable) -> int:
        if self._seed.ndim:
            raise ValueError("seed must be one number in a sampler that has requests")
        if isinstance(request, bool) or not isinstance(request, int | str):
            raise TypeError(f"requests must be ints or strs, or have a seed, got {request!r}")
        key = int(self._seed).to_bytes(8, "little")
        text = f"{type(request).__name__} {request}".encode()
        return int.from_bytes(hashlib.blake2b(text, key=key, digest_size=8).digest(), "little")

    # --- calls --------------------------------------------------------------------------------

    def __call__(
        self,
        logits: object,
        *,
        requests: Sequence[Hashable] | None = None,
        tokens: object = None,
        offsets: object = None,
        where: object = None,
        axis: Axis = -1,
        return_logprob: bool = False,
    ) -> Any:
        """One class for each row.

        Args:
            logits, where, axis, return_logprob: As in `sample`.
            requests: The name of each row's request. A new name begins a request.
            tokens, offsets: Those so far, for penalties (see `penalize`).
        """
        with_logs = as_bool(return_logprob, "return_logprob")
        found = None if requests is None else self._rows_of(requests)
        task = self._draw(logits, found, tokens, offsets, where, axis)
        drawn, logs = self._next(task, found, with_logs)
        shape = task.plan.row_shape
        result = drawn.reshape(shape)
        token = from_numpy(result if result.ndim else result[()], logits)
        if not with_logs:
            return token
        numbers = logs.reshape(shape).astype(task.plan.dtype)
        return token, from_numpy(numbers if numbers.ndim else numbers[()], logits)

    def truncate(
        self,
        logits: object,
        *,
        requests: Sequence[Hashable] | None = None,
        tokens: object = None,
        offsets: object = None,
        where: object = None,
        axis: Axis = -1,
    ) -> Any:
        """The logits after penalties, with -inf where the next call would cut; draws nothing."""
        found = None if requests is None else self._rows_of(requests)
        task = self._draw(logits, found, tokens, offsets, where, axis)
        return from_numpy(task.truncate(), logits, keep_type=True)

    def _next(self, task: Draw, found: list[Request] | None, with_logs: bool) -> tuple[Any, Any]:
        """Draw, and go one step further."""
        bounds = task.mu.copy()
        drawn, logs = task.sample(first_tie=self.first_tie, with_logs=with_logs)
        self._learn(task, bounds, found)
        return drawn, logs

    def _draw(
        self,
        logits: object,
        found: list[Request] | None,
        tokens: object,
        offsets: object,
        where: object,
        axis: Axis,
    ) -> Draw:
        settings = self.settings if found is None else joined(found)
        if settings.penalizes:
            if tokens is None:
                raise ValueError("tokens must be given: this sampler penalizes those so far")
            if getattr(getattr(logits, "dtype", None), "itemsize", 8) == 2:  # rounds to the type
                given: dict[str, Any] = dict(settings.penalties)
                logits = penalize(logits, tokens, offsets=offsets, axis=axis, **given)  # type: ignore[arg-type]
                tokens, offsets = None, None
        values, mask = to_numpy(logits, "logits"), to_numpy(where, "where")
        plan = plan_rows(values, axis, settings.temperature, mask)
        if found is not None and plan.count != len(found):
            raise ValueError(f"requests must name each of {plan.count} rows, got {len(found)}")
        penalties = settings.penalties if settings.penalizes and tokens is not None else {}
        history = to_numpy(tokens, "tokens") if penalties else None
        cuts = to_numpy(offsets, "offsets") if penalties else None
        edits = edits_of(plan, penalties, history, cuts, settings.bias)
        return self._task(plan, edits, settings, found)

    def _task(
        self, plan: RowPlan, edits: RowEdits, settings: Settings, found: list[Request] | None
    ) -> Draw:
        if found is None:
            seeds = as_seeds(self._seed, plan, self.calls)
            return Draw(plan, self.program, seeds, edits, self._bounds(plan))
        order = program_of(settings, self.settings, self.order)
        keys = np.array([one.seed for one in found], np.uint64).reshape(plan.row_shape or (1,))
        steps = np.array([one.step for one in found]).reshape(plan.row_shape or (1,))
        mu = NO_MU
        if settings.mirostat is not None:
            mu = np.array([LARGEST_FLOAT64 if one.mu is None else one.mu for one in found])
        seeds = as_seeds(keys, plan, steps)
        return Draw(plan, order, seeds, edits, mu)

    def _rows_of(self, requests: Sequence[Hashable]) -> list[Request]:
        names: list[Hashable] = [requests] if isinstance(requests, str) else [*requests]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"requests must name each row once, got {twice!r} twice")
        for name in names:
            if name not in self._requests:
                self.add(name)
        return [self._requests[name] for name in names]

    def _learn(self, task: Draw, bounds: Array, found: list[Request] | None) -> None:
        """After a draw: one step further, and mirostat's bounds by the surprise of each row."""
        settings = self.settings if found is None else joined(found)
        if settings.mirostat is not None:
            target, rate = (
                one_for_each_row(number, task.plan, "mirostat")
                for number in settings.mirostat.numbers
            )
            with np.errstate(over="ignore"):  # beyond float64 it is as good as the largest number
                learnt = np.clip(
                    bounds - rate * (task.mu - target), -LARGEST_FLOAT64, LARGEST_FLOAT64
                )
            if found is None:
                self.mu = learnt
            else:
                for one, number in zip(found, learnt, strict=True):
                    one.mu = None if one.settings.mirostat is None else float(number)
        if found is None:
            self.calls += 1
        else:
            for one in found:
                one.step += 1

    def _bounds(self, plan: RowPlan) -> Array:
        """mirostat's mu for each row of a call without requests."""
        step = self.settings.mirostat
        if step is None:
            return NO_MU
        if not self.mu.size:
            target = one_for_each_row(step.numbers[0], plan, "mirostat")
            return np.broadcast_to(np.minimum(2.0 * target, LARGEST_FLOAT64), (plan.count,)).copy()
        if self.mu.size != plan.count:
            raise ValueError(
                f"logits must keep their {self.mu.size} rows from call to call under mirostat, "
                f"got {plan.count}; or name the request of each row in requests"
            )
        return self.mu


def seed_of_entropy() -> int:
    return int(as_seeds(None, RowPlan(0.0, -1)).keys[0])
