"""hotmax in vLLM: processors that draw the tokens of requests that ask for it.

| vLLM | interface | class |
|---|---|---|
| 0.10.1 and later, V1 model runner | update_state, apply, is_argmax_invariant | `LogitsProcessor` |
| 0.32 and later, model runner V2 | add_request, apply with a context | `RunnerV2LogitsProcessor` |

Up to 0.31 the V1 runner is the only one with custom processors; from 0.32 on it is the older one
(VLLM_USE_V2_MODEL_RUNNER=0). Pass the class, or its name, when the engine is made:

    LLM(model, logits_processors=["hotmax.integrations.vllm:LogitsProcessor"])

A request asks for hotmax by a custom argument, the settings of `Sampler` and a seed as a dict or as
the JSON of one:

    SamplingParams(extra_args={"hotmax": {"temperature": 0.8, "top_p": 0.9, "seed": 7}})

Its token is drawn, and all others get -inf, so that vLLM's own steps change nothing. Other requests
are left as they are. Without a seed, that of SamplingParams is taken, or else a fresh one.
Penalties act on the prompt and the output.
"""

from __future__ import annotations

import importlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hotmax._sampling.requests import Request
from hotmax._sampling.sampler import Sampler
from hotmax.integrations.rows import next_tokens

__all__ = ["LogitsProcessor", "RunnerV2LogitsProcessor"]

ARGUMENT = "hotmax"


def _base(module: str) -> Any:
    """The class that vLLM wants processors to be of; without vLLM, any."""
    try:
        return importlib.import_module(module).LogitsProcessor
    except ModuleNotFoundError:
        return object


V1: Any = _base("vllm.v1.sample.logits_processor")
V2: Any = _base("vllm.v1.worker.gpu.sample.logits_processor")


def settings_of(params: Any) -> dict[str, Any] | None:
    """The settings of a request; None if it does not ask for hotmax."""
    given = (getattr(params, "extra_args", None) or {}).get(ARGUMENT)
    if given is None:
        return None
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise ValueError(f"extra_args[{ARGUMENT!r}] must be JSON: {error}") from None
    if not isinstance(given, Mapping):
        raise ValueError(f"extra_args[{ARGUMENT!r}] must be a dict of settings, got {given!r}")
    settings = dict(given)
    if settings.get("seed") is None:
        own = getattr(params, "seed", None)
        settings["seed"] = secrets.randbits(64) if own is None else int(own)
    return settings


def new_request(sampler: Sampler, settings: dict[str, Any], step: int) -> Request:
    """A request at a position; what is wrong with its settings is a ValueError, as vLLM wants."""
    own = {name: value for name, value in settings.items() if name != "seed"}
    try:
        return sampler._request(settings["seed"], step, None, own)
    except TypeError as error:
        raise ValueError(str(error)) from None


def force(logits: torch.Tensor, rows: list[int], drawn: Any) -> torch.Tensor:
    """Leave only the drawn token of these rows, in place."""
    at = torch.tensor(rows, device=logits.device)
    logits[at] = -torch.inf
    logits[at, torch.from_numpy(drawn).to(logits.device)] = 0.0
    return logits


@dataclass
class _Row:
    request: Request
    prompt: list[int]
    output: list[int]  # vLLM's own list, which grows


class LogitsProcessor(V1):  # type: ignore[misc]
    """The interface of the V1 model runner. See the module.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> from hotmax.integrations.vllm import LogitsProcessor
        >>> processor = LogitsProcessor(None, torch.device("cpu"), False)
        >>> params = SimpleNamespace(extra_args={"hotmax": {"top_k": 1, "seed": 1}}, seed=None)
        >>> added = [(0, params, [5], [])]
        >>> update = SimpleNamespace(batch_size=1, removed=[], added=added, moved=[])
        >>> processor.update_state(update)
        >>> processor.apply(torch.tensor([[0.0, 2.0, 1.0]]))
        tensor([[-inf, 0., -inf]])
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.sampler = Sampler(order="vllm", ties="first")
        self.rows: dict[int, _Row] = {}

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raise ValueError for settings that cannot be."""
        settings = settings_of(sampling_params)
        if settings is not None:
            new_request(Sampler(order="vllm"), settings, 0)

    def is_argmax_invariant(self) -> bool:
        """False: what is drawn need not be the largest."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow the requests: those removed, then those added, then those moved."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self.rows.pop(index, None)
        for index, params, *lists in batch_update.added:
            self.rows.pop(index, None)
            settings = settings_of(params)
            if settings is not None:
                output = lists[-1]
                prompt = list(lists[0] or []) if len(lists) > 1 else []
                request = new_request(self.sampler, settings, len(output))
                self.rows[index] = _Row(request, prompt, output)
        for one, two, direction in batch_update.moved:
            first, second = self.rows.pop(one, None), self.rows.pop(two, None)
            if first is not None:
                self.rows[two] = first
            if second is not None and getattr(direction, "name", "") == "SWAP":
                self.rows[one] = second

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Draw for the rows whose requests ask for it. logits are changed in place."""
        if not self.rows:
            return logits
        indices = sorted(self.rows)
        rows = [self.rows[place] for place in indices]
        for row in rows:
            row.request.step = len(row.output)
        tokens = [[*row.prompt, *row.output] for row in rows]
        values = logits[torch.tensor(indices, device=logits.device)]
        drawn = next_tokens(self.sampler, [row.request for row in rows], values, tokens)
        return force(logits, indices, drawn)


def buffer_values(buffer: Any) -> torch.Tensor:
    """A tensor of vLLM's, or of one of its buffers, on the CPU."""
    for name in ("np", "cpu", "gpu"):
        part = getattr(buffer, name, None)
        if isinstance(part, np.ndarray):
            return torch.from_numpy(part)
        if isinstance(part, torch.Tensor):
            return part.cpu()
    found: torch.Tensor = torch.as_tensor(buffer).cpu()
    return found


class RunnerV2LogitsProcessor(V2):  # type: ignore[misc]
    """The interface of model runner V2, with several rows for a request in speculative decoding.

    Every row draws by the position of its token, so no state is kept: mirostat is refused.
    """

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.sampler = Sampler(order="vllm", ties="first")
        self.states = req_states
        self.slots: dict[int, dict[str, Any]] = {}

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raise ValueError for settings that cannot be."""
        settings = settings_of(sampling_params)
        if settings is not None:
            request = new_request(Sampler(order="vllm"), settings, 0)
            if request.settings.mirostat is not None:
                raise ValueError("mirostat needs a state, which model runner V2 does not keep")

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Fill a slot anew. True if the request asks for hotmax."""
        settings = settings_of(sampling_params)
        self.slots.pop(req_idx, None)
        if settings is not None:
            self.slots[req_idx] = settings
        return settings is not None

    def apply_staged_writes(self) -> None:
        """Nothing is staged."""

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Draw for the rows whose requests ask for it. logits are changed in place."""
        slots = ctx.expanded_idx_mapping.tolist()
        indices = [row for row, slot in enumerate(slots) if slot in self.slots]
        if not indices:
            return logits
        positions, inputs = ctx.pos.tolist(), ctx.input_ids.tolist()
        prompts, totals = (
            buffer_values(self.states.prompt_len),
            buffer_values(self.states.total_len),
        )
        requests = [
            new_request(
                self.sampler,
                self.slots[slots[row]],
                positions[row] + 1 - int(prompts[slots[row]]),
            )
            for row in indices
        ]
        tokens: Any = None
        if any(request.settings.penalizes for request in requests):
            committed = buffer_values(self.states.all_token_ids)
            tokens = [
                self._history(row, slots, positions, inputs, committed, totals) for row in indices
            ]
        values = logits[torch.tensor(indices, device=logits.device)]
        return force(logits, indices, next_tokens(self.sampler, requests, values, tokens))

    def _history(
        self,
        row: int,
        slots: list[int],
        positions: list[int],
        inputs: list[int],
        committed: torch.Tensor,
        totals: torch.Tensor,
    ) -> list[int]:
        """The tokens up to a row's position: those committed, then this step's drafts."""
        slot, last = slots[row], int(totals[slots[row]])
        known: list[int] = committed[slot, : min(last, positions[row] + 1)].tolist()
        drafts = sorted(
            (positions[other], inputs[other])
            for other in range(len(slots))
            if slots[other] == slot and last <= positions[other] <= positions[row]
        )
        return known + [token for _, token in drafts]
