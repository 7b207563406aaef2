// Formulas as they are usually written, in float32 and float64, to see where they break.

import { distribution, largest } from "./softmax.js";

const ROUND = { float32: Math.fround, float64: (v) => v };
export const DIGITS = { float32: 9, float64: 17 };

/** exp(x) / sum exp(x), or its logarithm, every step rounded to the type. */
export function naive(x, type, log) {
  const round = ROUND[type];
  const e = x.map((v) => round(Math.exp(round(v))));
  const total = e.reduce((a, b) => round(a + b), 0);
  return e.map((v) => (log ? round(Math.log(round(v / total))) : round(v / total)));
}

/** The same after the maximum is subtracted; in log space x - max - log sum. */
export function maxTrick(x, type, log) {
  const round = ROUND[type];
  const m = round(largest(x));
  const d = x.map((v) => round(round(v) - m));
  const e = d.map((v) => round(Math.exp(v)));
  const total = e.reduce((a, b) => round(a + b), 0);
  return d.map((v, i) => (log ? round(v - round(Math.log(total))) : round(e[i] / total)));
}

/** hotmax: the maximal term left out of the sum, log1p, the result rounded once. */
export function exact(x, type, log) {
  const found = distribution(x.map(ROUND[type]), 1);
  return Array.from(log ? found.logp : found.p, ROUND[type]);
}

/** How many leading digits agree: 0 for nan, an infinity or a lost number; all if equal. */
export function correctDigits(value, truth, type) {
  if (value === truth) return DIGITS[type];
  if (!Number.isFinite(value) || !Number.isFinite(truth) || truth === 0) return 0;
  const error = Math.abs(value - truth) / Math.abs(truth);
  return Math.max(0, Math.min(DIGITS[type], Math.floor(-Math.log10(error) + 0.3)));
}
