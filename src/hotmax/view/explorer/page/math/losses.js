// Losses of one row and a label, with gradients by the logits.

import { distribution, remainders, sum } from "./softmax.js";

/** The target: 1 on the label, or smoothed towards 1 / n over the n classes that are there. */
export function target(logp, label, smoothing) {
  const there = Array.from(logp, (v) => v > -Infinity);
  const share = smoothing / there.filter(Boolean).length;
  return there.map((present, i) => (i === label ? 1 - smoothing : 0) + (present ? share : 0));
}

/** -sum y log p, and its gradient (p - y) / T. A class without target adds nothing. */
export function crossEntropy(x, label, { T = 1, smoothing = 0 } = {}) {
  const { p, logp } = distribution(x, T);
  const y = target(logp, label, smoothing);
  const loss = sum(y.map((weight, i) => (weight > 0 ? -weight * logp[i] : 0)));
  const q = remainders(p);
  const gradient = y.map((weight, i) => (weight === 1 ? -q[i] : p[i] - weight) / T);
  return { loss, gradient };
}

/** 1 - p of the label, half the absolute difference from one-hot; gradient p_y (p - one-hot) / T. */
export function absoluteError(x, label, { T = 1 } = {}) {
  const { p } = distribution(x, T);
  const q = remainders(p);
  const gradient = Array.from(p, (v, i) => (p[label] * (i === label ? -q[i] : v)) / T);
  return { loss: q[label], gradient };
}
