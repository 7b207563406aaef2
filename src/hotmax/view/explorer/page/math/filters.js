// The filters of hotmax.Sampler, one step after another: the same orders, ties and kept classes.

import { distribution, largest } from "./softmax.js";

/** What each step takes: its name in Python, its range, and the number it starts with. */
export const STEPS = {
  top_k: { title: "top-k", start: 3, low: 1, high: 200, step: 1, says: "the k largest" },
  top_p: { title: "top-p", start: 0.9, low: 0.01, high: 1, step: 0.01, says: "the fewest that reach mass p" },
  min_p: { title: "min-p", start: 0.1, low: 0.001, high: 1, step: 0.001, says: "at least this share of the largest" },
  typical_p: { title: "typical", start: 0.9, low: 0.01, high: 1, step: 0.01, says: "surprise nearest to the entropy" },
  epsilon: { title: "epsilon", start: 0.02, low: 0.001, high: 0.999, step: 0.001, says: "probability of at least this" },
  eta: { title: "eta", start: 0.05, low: 0.001, high: 0.999, step: 0.001, says: "epsilon that adapts to the entropy" },
  top_n_sigma: { title: "top-n-sigma", start: 1, low: 0.05, high: 10, step: 0.05, says: "n standard deviations from the top logit" },
};

export const ORDERS = {
  hf: ["temperature", "top_n_sigma", "top_k", "top_p", "min_p", "typical_p", "epsilon", "eta"],
  vllm: ["temperature", "min_p", "top_n_sigma", "top_k", "top_p", "typical_p", "epsilon", "eta"],
  "llama.cpp": ["top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "epsilon", "eta", "temperature"],
};

const ALL = 0;
const LAST = 1;
const FIRST = 2;

/** Logits made smaller at tokens that came before, as hotmax.penalize. */
export function penalize(x, tokens, { repetition = 1, frequency = 0, presence = 0 }) {
  const counts = new Map();
  for (const token of tokens) counts.set(token, (counts.get(token) ?? 0) + 1);
  return Array.from(x, (v, i) => {
    const count = counts.get(i);
    if (!count) return v;
    const scaled = v < 0 ? v * repetition : v / repetition;
    return Number.isFinite(scaled) ? scaled - (frequency * count + presence) : scaled;
  });
}

/** Indices into keys that stay: the largest down to where weights reach the target. */
function keepTop(keys, weights, aim, strict, ties) {
  const order = Array.from(keys, (_, i) => i).sort((a, b) => keys[b] - keys[a] || a - b);
  let total = 0;
  let needed = 0;
  let cut = keys[order[order.length - 1]];
  for (let j = 0; j < order.length; j++) {
    needed = j > 0 && keys[order[j]] === keys[order[j - 1]] ? needed + 1 : 1;
    total += weights ? weights[order[j]] : 1;
    if (strict ? total > aim : total >= aim) {
      cut = keys[order[j]];
      break;
    }
  }
  const stays = keys.map((key) => key >= cut);
  if (ties === ALL) return stays;
  for (let j = 0; j < keys.length; j++) {
    const i = ties === FIRST ? j : keys.length - 1 - j;
    if (keys[i] === cut) stays[i] = needed-- > 0;
  }
  return stays;
}

function applyStep(name, number, state, llama) {
  const { value, t } = state;
  const m = largest(value);
  const z = value.map((v) => (v - m) / t);
  const from = (bound) => value.map((v, i) => v === m || z[i] >= bound);
  if (name === "top_k") {
    return number >= value.length ? value.map(() => true) : keepTop(value, null, number, false, llama ? FIRST : ALL);
  }
  if (name === "min_p") return from(Math.log(number));
  if (name === "top_n_sigma") {
    const gaps = value.map((v) => m - v);
    const mean = gaps.reduce((a, b) => a + b, 0) / gaps.length;
    const variance = gaps.reduce((a, b) => a + (b - mean) ** 2, 0) / gaps.length;
    return gaps.map((g) => g <= number * Math.sqrt(variance));
  }
  const weights = z.map(Math.exp);
  const total = weights.reduce((a, b) => a + b, 0);
  if (name === "top_p") return keepTop(value, weights, number * total, false, llama ? FIRST : LAST);
  if (name === "epsilon") return from(Math.log(number * total));
  const mean = value.reduce((a, v, i) => a + (weights[i] > 0 ? (m - v) * weights[i] : 0), 0) / total;
  if (name === "eta") {
    const entropy = Math.log(total) + mean / t;
    return from(Math.log(Math.min(number, Math.sqrt(number) * Math.exp(-entropy)) * total));
  }
  if (name === "typical_p") {
    const keys = value.map((v) => -Math.abs(m - v - mean));
    return keepTop(keys, weights, number * total, llama, llama ? FIRST : ALL);
  }
  throw new RangeError(`there is no step ${name}`);
}

/**
 * Run the steps in the order of a library, for T from 0 to inf. Returns the kept logits (-inf where
 * cut), p, and for each step how many classes and how much mass it cut.
 */
export function filter(x, steps, order, T) {
  const llama = order === "llama.cpp";
  const infinite = x.some((v) => v === Infinity);
  let index = Array.from(x, (_, i) => i).filter((i) => (infinite ? x[i] === Infinity : x[i] > -Infinity));
  let value = index.map((i) => (infinite ? 0 : x[i]));
  let t = 1;
  const cutBy = new Map();
  const log = [];
  for (const name of ORDERS[order]) {
    if (name !== "temperature" && !(name in steps)) continue;
    if ((name === "top_p" || name === "typical_p") && steps[name] === 1) continue;
    let stays;
    const before = distribution(value, t).p;
    if (name === "temperature") {
      const m = largest(value);
      stays = value.map((v) => T !== 0 || v === m);
      if (T !== 0) t = Math.max(t * T, 5e-324);
    } else {
      stays = applyStep(name, steps[name], { value, t }, llama);
    }
    const lost = before.reduce((a, p, i) => a + (stays[i] ? 0 : p), 0);
    index.forEach((i, j) => stays[j] || cutBy.set(i, name));
    log.push({ name, number: name === "temperature" ? T : steps[name], before: index.length, kept: stays.filter(Boolean).length, mass: lost });
    index = index.filter((_, j) => stays[j]);
    value = value.filter((_, j) => stays[j]);
  }
  const kept = new Array(x.length).fill(-Infinity);
  for (const i of index) kept[i] = x[i];
  return { kept, p: distribution(kept, T).p, log, cutBy };
}
