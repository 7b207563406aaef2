"""How often a report advises to leave the logits of a calibrated model as they are."""

from __future__ import annotations

import numpy as np

from hotmax.calibration.assessment import advised
from hotmax.calibration.binning import BINS
from hotmax.calibration.examples import read
from hotmax.calibration.families import FAMILIES
from hotmax.calibration.score_sums import Method, ScoreMethods
from hotmax.calibration.search import fit_examples
from simulation.models import draw_labels, logits_of

FAMILIES_TRIED = ("vector", "isotonic")  # beside the temperature: a few that are quickly fitted


def advised_share(
    kind: str, classes: int, rows: int, sets: int, seed: int, temperature: float = 1.0
) -> float:
    """The share of sets in which "none" is advised: `rows` fit, as many score."""
    rng = np.random.default_rng(seed)
    none = 0
    for _ in range(sets):
        z = logits_of(kind, 2 * rows, classes, rng)
        labels = draw_labels(z, rng, temperature)
        fitting = read(z[:rows], labels[:rows])
        methods = [Method("none", 1.0), Method("temperature", fit_examples(fitting).temperature)]
        for name in FAMILIES_TRIED:
            methods.append(Method(name, None, FAMILIES[name].fit(fitting, 1.0, BINS)))
        job = ScoreMethods(tuple(methods), None)
        middle = rows + rows // 2
        choosing, judging = (
            job(read(z[part], labels[part])) for part in (slice(rows, middle), slice(middle, None))
        )
        none += advised(methods, choosing, judging).method == "none"
    return none / sets
