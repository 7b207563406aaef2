"""hotmax in transformers' `generate`: a LogitsProcessor, and a decoding loop.

    model.generate(**inputs, logits_processor=[LogitsProcessor(seeds=[1, 2], top_p=0.9)])
    model.generate(**inputs, custom_generate=decoding_loop(seeds=[1, 2], top_p=0.9))

Either way each row draws by its own seed and position: the same tokens whatever the batch. Both are
for one call of `generate`; rows are prompts, times num_return_sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers.generation import logits_process

from hotmax._sampling.sampler import Sampler
from hotmax.integrations.rows import Completions, kept_logits, next_tokens

__all__ = ["LogitsProcessor", "decoding_loop"]


class LogitsProcessor(logits_process.LogitsProcessor):
    """Draws each row's next token, and leaves only that one to choose: its score is 0, others -inf.

    So `generate` takes it, with do_sample=True or False. Penalties act on the prompt too, as
    transformers' own do.

    Args:
        seeds: An int for each row; None for fresh ones.
        requests: For each row a dict of settings of its own; None if all have the same.
        order, ties: As in `Sampler`.
        draw: False to return the scores after all steps, for others to draw from.
        pad_token_id: Tokens in front of a prompt that penalties leave out.
        settings: As in `Sampler`.

    Example:
        >>> import torch
        >>> from hotmax.integrations.transformers import LogitsProcessor
        >>> processor = LogitsProcessor(seeds=[1, 2], top_k=2, temperature=0.8)
        >>> scores = processor(torch.tensor([[5], [6]]), torch.tensor([[0.0, 1.0, 2.0]] * 2))
        >>> scores.argmax(-1).tolist(), (scores == 0).sum(-1).tolist()
        ([2, 2], [1, 1])
    """

    supports_continuous_batching = False

    def __init__(
        self,
        *,
        seeds: Sequence[int] | None = None,
        requests: Sequence[Mapping[str, Any]] | None = None,
        order: str = "hf",
        ties: str = "first",
        draw: bool = True,
        pad_token_id: int | None = None,
        **settings: Any,
    ) -> None:
        sampler = Sampler(settings, order=order, ties=ties)
        self.completions = Completions(sampler, seeds, requests)
        self.draw = draw
        self.pad_token_id = pad_token_id

    def reset(self) -> None:
        """Begin anew: for a further call of `generate`, whose prompt is one token longer."""
        self.completions.reset()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        count, length = input_ids.shape
        rows, sampler = self.completions.rows_at(count, length), self.completions.sampler
        tokens = without_padding(input_ids, self.pad_token_id)
        if not self.draw:
            kept = torch.from_numpy(kept_logits(sampler, rows, scores.detach(), tokens))
            for row in rows:
                row.step += 1
            return kept.to(scores.device, scores.dtype)
        drawn = torch.from_numpy(next_tokens(sampler, rows, scores.detach(), tokens))
        only = torch.full_like(scores, -torch.inf)
        return only.scatter_(1, drawn.to(scores.device)[:, None], 0.0)


def without_padding(input_ids: torch.Tensor, pad_token_id: int | None) -> torch.Tensor:
    """The tokens, with -1 for padding in front."""
    if pad_token_id is None:
        return input_ids
    begun = (input_ids != pad_token_id).cumsum(1) > 0
    return torch.where(begun, input_ids, -1)


def decoding_loop(
    *,
    seeds: Sequence[int] | None = None,
    requests: Sequence[Mapping[str, Any]] | None = None,
    order: str = "hf",
    ties: str = "first",
    **settings: Any,
) -> Callable[..., torch.Tensor]:
    """A loop for generate(custom_generate=...), which draws by hotmax and nothing else.

    Logits processors, stopping criteria, caches and padding are those of `generate`.

    Args:
        seeds, requests, order, ties, settings: As in `LogitsProcessor`.

    Example:
        >>> from hotmax.integrations.transformers import decoding_loop
        >>> loop = decoding_loop(seeds=[1], temperature=0.7, top_p=0.9)
        >>> # model.generate(**inputs, custom_generate=loop, max_new_tokens=20)
    """
    completions = Completions(Sampler(settings, order=order, ties=ties), seeds, requests)

    def loop(
        model: Any,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> torch.Tensor:
        completions.reset()
        pad = generation_config._pad_token_tensor
        running = torch.ones(len(input_ids), dtype=torch.bool, device=input_ids.device)
        outputs = model._prefill(input_ids, generation_config, model_kwargs)
        while True:
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
            scores = logits_processor(input_ids, outputs.logits[:, -1].float())
            rows = completions.rows_at(*input_ids.shape)
            history = without_padding(input_ids, None if pad is None else int(pad))
            drawn = torch.from_numpy(next_tokens(completions.sampler, rows, scores, history))
            tokens = drawn.to(input_ids.device)
            if pad is not None:
                tokens = torch.where(running, tokens, pad)
            input_ids = torch.cat([input_ids, tokens[:, None]], dim=1)
            running &= ~stopping_criteria(input_ids, None)
            if not running.any():
                return input_ids
            last = 1 if model_kwargs.get("use_cache") else None
            inputs = model.prepare_inputs_for_generation(
                input_ids, next_sequence_length=last, **model_kwargs
            )
            outputs = model(**inputs, return_dict=True)

    return loop
