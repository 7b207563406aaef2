"""hotmax in llama-cpp-python: a logits processor, and a sampler over its scores.

    llm.create_completion(prompt, logits_processor=[LogitsProcessor(seed=1, top_p=0.9)])
    for token in generate(llm, llm.tokenize(b"Hello"), seed=1, top_p=0.9): ...

Written for the interface of llama-cpp-python 0.2 and 0.3: a processor takes the tokens so far and
the scores of the next one as NumPy arrays, and returns scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._sampling.sampler import Sampler
from hotmax.integrations.rows import Completions, next_tokens

__all__ = ["LogitsProcessor", "generate"]


class LogitsProcessor:
    """Draws the next token, and leaves only that one to choose: its score is 0, all others -inf.

    For one completion: whatever llama.cpp does next, it can take only that token.

    Args:
        seed: An int from 0 to 2**64 - 1; None for a fresh one.
        order, ties: As in `Sampler`.
        settings: As in `Sampler`. Penalties act on all tokens so far.

    Example:
        >>> import numpy as np
        >>> from hotmax.integrations.llama_cpp import LogitsProcessor
        >>> processor = LogitsProcessor(seed=3, top_k=2)
        >>> processor(np.array([5, 6]), np.array([0.0, 1.0, 2.0], np.float32))
        array([-inf, -inf,   0.], dtype=float32)
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        order: str = "llama.cpp",
        ties: str = "first",
        **settings: Any,
    ) -> None:
        sampler = Sampler(settings, order=order, ties=ties)
        self.completions = Completions(sampler, None if seed is None else [seed], None)

    def reset(self) -> None:
        """Begin anew: for a further completion, whose prompt is one token longer."""
        self.completions.reset()

    def __call__(self, input_ids: Any, scores: Any) -> Array:
        tokens, logits = np.asarray(input_ids), np.asarray(scores)
        if tokens.ndim != 1 or logits.ndim != 1:
            raise ValueError(
                f"input_ids and scores must be one sequence each, got shapes {tokens.shape} and "
                f"{logits.shape}"
            )
        rows = self.completions.rows_at(1, tokens.size)
        drawn = next_tokens(self.completions.sampler, rows, logits[None], tokens[None])
        only = np.full(logits.shape, -np.inf, logits.dtype)
        only[drawn[0]] = 0.0
        return only


def generate(
    llm: Any,
    tokens: Sequence[int],
    *,
    seed: int | None = None,
    order: str = "llama.cpp",
    ties: str = "first",
    **settings: Any,
) -> Iterator[int]:
    """Tokens of a model without end, drawn by hotmax alone: llama.cpp only evaluates.

    Args:
        llm: A llama_cpp.Llama that was made with logits_all=True, which keeps its scores.
        tokens: The prompt.
        seed, order, ties, settings: As in `LogitsProcessor`.

    Yields:
        Token after token; stop at `llm.token_eos()`.
    """
    if not getattr(llm, "_logits_all", True):
        raise ValueError("llm must be made with logits_all=True: else it keeps no scores")
    if not len(tokens):
        raise ValueError("tokens must hold at least one token, the beginning of the text")
    completions = Completions(
        Sampler(settings, order=order, ties=ties), None if seed is None else [seed], None
    )
    history = [int(token) for token in tokens]
    llm.reset()
    llm.eval(history)
    while True:
        rows = completions.rows_at(1, len(history))
        logits = np.asarray(llm.scores[llm.n_tokens - 1])[None]
        token = int(next_tokens(completions.sampler, rows, logits, [history])[0])
        yield token
        history.append(token)
        llm.eval([token])
