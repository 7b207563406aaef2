// Temperature over a whole set of predictions: bins, ECE, the nll and the fitted temperature.

const QUANTILE = 3.841458820694124; // of chi-squared with one degree of freedom: 95 %
const NORMAL = 1.959963984540054;

/** What does not depend on the temperature: the maximum of each row, its class, the label's gap. */
export function survey({ logits, labels, rows, classes }) {
  const peaks = new Float64Array(rows);
  const best = new Int32Array(rows);
  const gaps = new Float64Array(rows);
  for (let r = 0; r < rows; r++) {
    let m = -Infinity;
    for (let c = 0; c < classes; c++) {
      const v = logits[r * classes + c];
      if (v > m) {
        m = v;
        best[r] = c;
      }
    }
    peaks[r] = m;
    gaps[r] = logits[r * classes + labels[r]] - m;
  }
  return { logits, labels, rows, classes, peaks, best, gaps };
}

/** Mean nll, confidence, accuracy and the bins of a reliability diagram at T > 0. */
export function assess(set, T, bins = 15) {
  const { logits, labels, rows, classes, peaks, best, gaps } = set;
  const count = new Array(bins).fill(0);
  const confidence = new Array(bins).fill(0);
  const correct = new Array(bins).fill(0);
  let nll = 0;
  for (let r = 0; r < rows; r++) {
    let rest = 0;
    for (let c = 0; c < classes; c++) {
      if (c !== best[r]) rest += Math.exp((logits[r * classes + c] - peaks[r]) / T);
    }
    nll += Math.log1p(rest) - gaps[r] / T;
    const p = 1 / (1 + rest);
    const hit = best[r] === labels[r] ? 1 : 0;
    let b = Math.min(Math.max(Math.ceil(p * bins) - 1, 0), bins - 1);
    while (b > 0 && p <= b / bins) b--; // bins are closed on the right
    while (b < bins - 1 && p > (b + 1) / bins) b++;
    count[b]++;
    confidence[b] += p;
    correct[b] += hit;
  }
  let ece = 0;
  const table = count.map((n, b) => {
    const share = n / rows;
    const mean = confidence[b] / n;
    const accuracy = correct[b] / n;
    if (n) ece += share * Math.abs(mean - accuracy);
    return { low: b / bins, high: (b + 1) / bins, count: n, confidence: mean, accuracy, interval: wilson(correct[b], n) };
  });
  const total = (list) => list.reduce((a, b) => a + b, 0);
  return { T, rows, nll: nll / rows, ece, accuracy: total(correct) / rows, confidence: total(confidence) / rows, bins: table };
}

/** The 95 % Wilson interval of a share. */
export function wilson(hits, n) {
  const share = hits / n;
  const square = NORMAL ** 2 / n;
  const middle = (share + square / 2) / (1 + square);
  const width = (NORMAL * Math.sqrt((share * (1 - share)) / n + square / n / 4)) / (1 + square);
  return [Math.max(middle - width, 0), Math.min(middle + width, 1)];
}

/** The nll as a sum over rows at beta = 1 / T, with derivatives by log beta. */
export function likelihood(set, beta) {
  const { logits, rows, classes, peaks, gaps } = set;
  let nll = 0;
  let gradient = 0;
  let curvature = 0;
  for (let r = 0; r < rows; r++) {
    let total = 0;
    let first = 0;
    let second = 0;
    for (let c = 0; c < classes; c++) {
      const z = (logits[r * classes + c] - peaks[r]) * beta;
      if (z === -Infinity) continue;
      const e = Math.exp(z);
      total += e;
      first += e * z;
      second += e * z * z;
    }
    const mean = first / total;
    nll += Math.log1p(total - 1) - gaps[r] * beta;
    gradient += mean - gaps[r] * beta;
    curvature += second / total - mean * mean;
  }
  return { nll, gradient, curvature };
}

/** The temperature of least nll and its 95 % interval by profile likelihood. */
export function fit(set) {
  let low = 0;
  let high = Infinity;
  let beta = 1;
  let point = likelihood(set, beta);
  for (let i = 0; i < 200; i++) {
    if (point.gradient < 0) low = beta;
    else high = beta;
    let next = beta * (1 - point.gradient / point.curvature);
    if (!(next > low && next < high)) next = high < Infinity ? (low ? Math.sqrt(low * high) : high / 8) : beta * 8;
    const moved = Math.abs(next - beta);
    beta = next;
    point = likelihood(set, beta);
    if (moved <= 4e-16 * beta || !(beta > 1e-300 && beta < 1e300)) break;
  }
  const crossing = (factor) => {
    let inside = beta;
    let outside = beta * factor;
    const over = (b) => 2 * (likelihood(set, b).nll - point.nll) - QUANTILE;
    while (over(outside) < 0) {
      inside = outside;
      outside *= factor;
      if (!(outside > 1e-300 && outside < 1e300)) return factor > 1 ? 0 : Infinity;
    }
    for (let i = 0; i < 60; i++) {
      const middle = Math.sqrt(inside * outside);
      if (middle === inside || middle === outside) break;
      if (over(middle) < 0) inside = middle;
      else outside = middle;
    }
    return 1 / Math.sqrt(inside * outside);
  };
  return { temperature: 1 / beta, interval: [crossing(1.1), crossing(1 / 1.1)], nll: point.nll / set.rows };
}
