// Attention scores q k^T as the number of features grows, scaled by 1 / sqrt(d) and not.

import { normal } from "./random.js";
import { distribution, largest } from "./softmax.js";

export const KEYS = 32;
export const FEATURES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const APART = 1024; // integers that belong to one vector

let known = { seed: null };

/** Scores of one normal query and KEYS normal keys, for each number of features, from a seed. */
export function scores(seed) {
  if (known.seed === seed) return known.found;
  const start = seed * (KEYS + 1) * APART;
  const most = FEATURES[FEATURES.length - 1];
  const q = Array.from({ length: most }, (_, f) => normal(start + f));
  const found = new Map(FEATURES.map((d) => [d, []]));
  for (let k = 1; k <= KEYS; k++) {
    let dot = 0;
    for (let f = 0; f < most; f++) {
      dot += q[f] * normal(start + k * APART + f);
      found.get(f + 1)?.push(dot);
    }
  }
  known = { seed, found };
  return found;
}

/** Weights, entropy, the largest weight and the mean of p (1 - p), which a gradient must pass. */
export function weights(list, scale) {
  const { p, entropy } = distribution(list.map((s) => s * scale), 1);
  const slope = p.reduce((a, v) => a + v * (1 - v), 0) / p.length;
  return { p, entropy, slope, largest: largest(p) };
}
