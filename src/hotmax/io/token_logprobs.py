"""Log-probabilities of tokens, as the APIs of language models return them: perplexity, and options.

A .json file holds one response or a list, a .jsonl file one in each line. Read are the `logprobs`
of chat completions (`content`), of completions (`token_logprobs`) and of responses (`output`), each
also within the `response` of a batch.

    >>> import json, tempfile, pathlib, hotmax as hm
    >>> top = [{"token": "A", "logprob": -0.2}, {"token": " B", "logprob": -1.8}]
    >>> line = {"choices": [{"logprobs": {"content": [{**top[0], "top_logprobs": top}]}}]}
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "answers.jsonl"
    >>> _ = path.write_text("".join(json.dumps({**line, "label": x}) + "\\n" for x in "AB"))
    >>> answers = hm.io.read(path)
    >>> round(answers.perplexity, 4), answers.class_names, answers.labels.tolist()
    (1.2214, ('A', 'B'), [0, 1])
    >>> folder.cleanup()

The first 20 are no distribution: from them come logits only for answer options that are all listed.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.reading import bounded, shown, strict_json
from hotmax._losses.text_score import TextScore
from hotmax.io.found import LABEL_NAMES, NONE
from hotmax.io.labels import as_labels

LOGPROB_FILES = (".json", ".jsonl")
LONGEST_RESPONSES = 1 << 30  # bytes of a file
OPTION_NAMES = ("options", "class_names", "classes")
ABOVE_ZERO = 1e-4  # a rounded log-probability may be this much


@dataclass(frozen=True, eq=False)
class TokenLogprobs:
    """What `read` has found in a file of log-probabilities: one row for each response.

    Attributes:
        logits: (rows, options): the log-probabilities of the answer options at the first token of
            each response; without options (rows, 0).
        labels: The right option of each row, int64; or None.
        class_names: The answer options, or None.
        source: The file.
        label_source: Where the labels come from, or None.
        tokens: The tokens of each response.
        logprobs: Their log-probabilities, an array for each response.
        score: The score of all responses, and in `documents` of each.
        why_no_options: Why there are no logits; "" if there are.
    """

    logits: Array = field(repr=False)
    labels: Array | None = field(repr=False)
    class_names: tuple[str, ...] | None
    source: str
    label_source: str | None
    tokens: tuple[tuple[str, ...], ...] = field(repr=False)
    logprobs: tuple[Array, ...] = field(repr=False)
    score: TextScore
    why_no_options: str = ""

    @property
    def perplexity(self) -> float:
        """exp of the mean of -log p over all tokens."""
        return self.score.perplexity

    @property
    def bits_per_byte(self) -> float:
        """-log2 p of all tokens over the bytes of their text."""
        return self.score.bits_per_byte

    def __str__(self) -> str:
        options = f"{self.logits.shape[1]} options" if self.class_names else self.why_no_options
        return (
            f"{self.source}: {len(self.tokens)} responses, {self.score.tokens} tokens, perplexity "
            f"{self.perplexity:.4f}, {options}"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True)
class Token:
    """A token of a response; its number is None where the API gives none."""

    text: str
    logprob: float | None
    size: int  # bytes
    top: dict[str, float]  # of the likeliest in its place


def read_token_logprobs(
    file: Path, labels: object = None, class_names: Sequence[str] | None = None
) -> TokenLogprobs:
    """The log-probabilities of a file. labels: the key of the label; None for the usual ones."""
    if labels is not None and not isinstance(labels, str):
        raise TypeError(f"labels must be the name of a key in {file}, got {labels!r}")
    lines = list(objects_of(file))
    responses = [list(tokens_of(line, place, file)) for place, line in lines]
    for (place, _), tokens in zip(lines, responses, strict=True):
        if not tokens:
            raise ValueError(f"{file}: {place} has no log-probabilities of tokens")
    raw, key = found_labels([line for _, line in lines], labels, file)
    names = option_names([line for _, line in lines], class_names, raw)
    logits, why = np.empty((len(lines), 0)), "no answer options: say class_names"
    if names:
        try:
            logits, why = option_logits(responses, [place for place, _ in lines], names, file), ""
        except ValueError as error:
            if class_names is not None:
                raise
            why, names = str(error).removeprefix(f"{file}: "), ()
    numbers = None
    if raw is not None and names:
        numbers_of_lines = [place for place, _ in lines]
        numbers = as_labels(raw, len(lines), len(names), names, numbers_of_lines.__getitem__, file)
    return TokenLogprobs(
        logits,
        numbers,
        names or None,
        str(file),
        None if numbers is None else f"key {key!r}",
        tuple(tuple(token.text for token in tokens) for tokens in responses),
        tuple(np.array([logprob_of(t) for t in tokens], np.float64) for tokens in responses),
        score_of(responses),
        why,
    )


def logprob_of(token: Token) -> float:
    return math.nan if token.logprob is None else token.logprob


def score_of(responses: Sequence[Sequence[Token]]) -> TextScore:
    """That of all tokens that have a number, and of each response."""

    def score(tokens: Iterable[Token], parts: dict[int, TextScore]) -> TextScore:
        counted = [t for t in tokens if t.logprob is not None]
        nll = math.fsum(-logprob_of(t) for t in counted) + 0.0
        return TextScore(nll, len(counted), sum(t.size for t in counted), parts)

    each = {row: score(tokens, {}) for row, tokens in enumerate(responses)}
    return score((token for tokens in responses for token in tokens), each)


# --- the file ---------------------------------------------------------------------------------


def objects_of(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where it is, a response) for each."""
    text = bounded(file, LONGEST_RESPONSES, "a file of log-probabilities")
    if file.suffix.lower() == ".jsonl":
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    found.append((f"line {number}", strict_json(line)))
                except ValueError as error:
                    raise ValueError(f"{file}: line {number} is not JSON: {error}") from None
    else:
        whole = strict_json(text)
        several = whole if isinstance(whole, list) else [whole]
        found = [(f"response {number}", one) for number, one in enumerate(several)]
    if not found:
        raise ValueError(f"{file} holds no responses")
    for place, one in found:
        if not isinstance(one, dict):
            raise ValueError(f"{file}: {place} must be an object, got {shown(str(one))}")
        yield place, one


def tokens_of(line: dict[str, Any], place: str, file: Path) -> Iterator[Token]:
    """The tokens of a response, in whichever form it is."""
    body = line
    for key in ("response", "body"):  # of a batch
        body = body[key] if isinstance(body.get(key), dict) else body
    parts: list[Any] = []
    if isinstance(body.get("choices"), list) and body["choices"]:
        choice = body["choices"][0]
        parts = [choice.get("logprobs") if isinstance(choice, dict) else None]
    elif isinstance(body.get("output"), list):
        parts = [
            content.get("logprobs")
            for item in body["output"]
            if isinstance(item, dict) and isinstance(item.get("content"), list)
            for content in item["content"]
            if isinstance(content, dict)
        ]
    elif "logprobs" in body:
        parts = [body["logprobs"]]
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("content"), list):
            part = part["content"]
        if isinstance(part, list):
            yield from (chat_token(one, place, file) for one in part)
        elif isinstance(part, dict) and isinstance(part.get("tokens"), list):
            yield from completion_tokens(part, place, file)


def chat_token(one: Any, place: str, file: Path) -> Token:
    if not isinstance(one, dict):
        raise ValueError(f"{file}: {place} has a token that is no object, {shown(str(one))}")
    text = checked_text(one.get("token"), place, file)
    listed: dict[str, float] = {}
    for other in one.get("top_logprobs") or ():
        if not isinstance(other, dict):
            raise ValueError(f"{file}: {place} has top_logprobs that are no objects")
        name = checked_text(other.get("token"), place, file)
        listed[name] = checked_logprob(other.get("logprob"), place, file)
    size = one.get("bytes")
    length = len(size) if isinstance(size, list) else len(text.encode("utf-8", "replace"))
    return Token(text, checked_logprob(one.get("logprob"), place, file), length, listed)


def completion_tokens(part: dict[str, Any], place: str, file: Path) -> Iterator[Token]:
    texts, numbers = part["tokens"], part.get("token_logprobs")
    if not isinstance(numbers, list) or len(numbers) != len(texts):
        raise ValueError(f"{file}: {place} must have as many token_logprobs as tokens")
    tops = part.get("top_logprobs") or [None] * len(texts)
    if not isinstance(tops, list) or len(tops) != len(texts):
        raise ValueError(f"{file}: {place} must have as many top_logprobs as tokens")
    for text, number, top in zip(texts, numbers, tops, strict=True):
        name = checked_text(text, place, file)
        given = top.items() if isinstance(top, dict) else ()
        listed = {key: checked_logprob(value, place, file) for key, value in given}
        log = None if number is None else checked_logprob(number, place, file)  # the first of echo
        yield Token(name, log, len(name.encode("utf-8", "replace")), listed)


def checked_text(text: Any, place: str, file: Path) -> str:
    if not isinstance(text, str):
        raise ValueError(f"{file}: {place} has a token that is no text, {shown(str(text))}")
    return text


def checked_logprob(number: Any, place: str, file: Path) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or number > ABOVE_ZERO:
        raise ValueError(
            f"{file}: {place} has a log-probability that is no number of 0 or less, "
            f"{shown(str(number))}"
        )
    return min(float(number), 0.0)


# --- answer options ---------------------------------------------------------------------------


def found_labels(
    lines: Sequence[dict[str, Any]], wanted: str | None, file: Path
) -> tuple[list[str] | None, str | None]:
    """(the label of each line as text, the key), or None."""
    if wanted == NONE:
        return None, None
    keys = LABEL_NAMES if wanted is None else (wanted,)
    key = next((name for name in keys if all(name in line for line in lines)), None)
    if key is None:
        if wanted is not None:
            raise ValueError(f"{file}: not every response has a label {wanted!r}")
        return None, None
    return [str(line[key]) for line in lines], key


def option_names(
    lines: Sequence[dict[str, Any]], given: Sequence[str] | None, labels: list[str] | None
) -> tuple[str, ...]:
    """Those given, those that every line lists alike, or those that are labels."""
    if given is not None:
        return tuple(str(name) for name in given)
    for key in OPTION_NAMES:
        options = lines[0].get(key)
        if isinstance(options, list) and all(line.get(key) == options for line in lines):
            return tuple(str(name) for name in options)
    return tuple(sorted({label.strip() for label in labels})) if labels else ()


def option_logits(
    responses: Sequence[Sequence[Token]], places: Sequence[str], names: tuple[str, ...], file: Path
) -> Array:
    """The log-probability of each option at the first token; spaces around a token do not count."""
    logits = np.full((len(responses), len(names)), -np.inf)
    number = {name: column for column, name in enumerate(names)}
    for row, tokens in enumerate(responses):
        first = tokens[0]
        listed = first.top or ({} if first.logprob is None else {first.text: first.logprob})
        for text, logprob in listed.items():
            column = number.get(text.strip())
            if column is not None:
                logits[row, column] = np.logaddexp(logits[row, column], logprob)
        missing = [name for name, value in zip(names, logits[row], strict=True) if value == -np.inf]
        if missing:
            raise ValueError(
                f"{file}: {places[row]} does not list the option {missing[0]!r} among its "
                f"{len(listed)} top_logprobs, which are no distribution"
            )
    return logits
