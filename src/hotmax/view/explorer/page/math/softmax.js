// softmax and its family with the contract of hotmax: every temperature from 0 to infinity is a
// number, -0 and below are softmin, -inf is a class that is not there.

/** -1 below temperature 0 (and at -0), else 1: softmin is softmax of the negated logits. */
export function signOf(T) {
  return T < 0 || Object.is(T, -0) ? -1 : 1;
}

/** (y - m) / t for y <= m, where the difference of finite numbers may overflow. */
function gap(y, m, t) {
  const d = y - m;
  return d === -Infinity && y > -Infinity ? 2 * ((0.5 * y - 0.5 * m) / t) : d / t;
}

/** A sum that keeps what rounding loses (Neumaier). */
export function sum(values) {
  let total = 0;
  let lost = 0;
  for (let i = 0; i < values.length; i++) {
    const v = values[i];
    const s = total + v;
    lost += Math.abs(total) >= Math.abs(v) ? total - s + v : v - s + total;
    total = s;
  }
  return Number.isFinite(lost) ? total + lost : total;
}

/**
 * Everything about one row at one temperature:
 * p, logp, logsumexp (of x / T), smoothmax (T times that), entropy, and what was there.
 */
export function distribution(x, T) {
  if (Number.isNaN(T)) throw new RangeError("temperature must be a number, got nan");
  const n = x.length;
  const sign = signOf(T);
  const t = Math.abs(T);
  const p = new Float64Array(n);
  const logp = new Float64Array(n);
  let m = -Infinity;
  let best = -1;
  let present = 0;
  let hasNan = false;
  for (let i = 0; i < n; i++) {
    const y = sign * x[i];
    if (Number.isNaN(y)) hasNan = true;
    if (y > -Infinity) present++;
    if (y > m) {
      m = y;
      best = i;
    }
  }
  const same = (value, logsumexp, smoothmax) => {
    p.fill(value);
    logp.fill(value);
    return { p, logp, logsumexp, smoothmax, entropy: NaN, max: NaN, present, n, best: -1 };
  };
  if (hasNan) return same(NaN, NaN, NaN);
  if (m === -Infinity) return same(NaN, -Infinity, sign * -Infinity);

  const shared = (inside, logsumexp, smoothmax) => {
    let count = 0;
    for (let i = 0; i < n; i++) if (inside(sign * x[i])) count++;
    for (let i = 0; i < n; i++) {
      const here = inside(sign * x[i]);
      p[i] = here ? 1 / count : 0;
      logp[i] = here ? -Math.log(count) : -Infinity;
    }
    const lse = logsumexp === null ? Math.log(count) : logsumexp;
    return { p, logp, logsumexp: lse, smoothmax, entropy: Math.log(count), max: sign * m, present, n, best };
  };
  if (m === Infinity) return shared((y) => y === Infinity, Infinity, sign * Infinity);
  if (t === 0) {
    const lse = m > 0 ? Infinity : m < 0 ? -Infinity : null;
    return shared((y) => y === m, lse, sign * m);
  }
  if (t === Infinity) {
    return shared((y) => y > -Infinity, null, present === 1 ? sign * m : sign * Infinity);
  }

  // One maximal term is left out of the sum: log1p keeps every digit near one-hot.
  const others = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    logp[i] = gap(sign * x[i], m, t);
    p[i] = Math.exp(logp[i]);
    others[i] = i === best ? 0 : p[i];
  }
  const rest = sum(others);
  const log = Math.log1p(rest);
  const parts = others; // reused
  for (let i = 0; i < n; i++) {
    p[i] /= 1 + rest;
    parts[i] = p[i] > 0 ? -logp[i] * p[i] : 0;
    logp[i] -= log;
  }
  const top = m / t;
  return {
    p, logp, logsumexp: top + log, smoothmax: sign * (m + t * log), entropy: log + sum(parts),
    max: sign * m, present, n, best,
  };
}

export function softmax(x, T = 1) {
  return distribution(x, T).p;
}

/** The base b in b**x that belongs to a temperature: exp(1 / T). */
export function baseOf(T) {
  if (T === 0) return signOf(T) > 0 ? Infinity : 0;
  return Math.exp(1 / T);
}

/** The temperature at which softmax is b**x / sum b**x: 1 / ln b. */
export function temperatureOfBase(b) {
  if (!(b >= 0)) throw new RangeError(`base must be a number from 0 to inf, got ${b}`);
  if (b === 1) return Infinity;
  return b === 0 ? -0 : 1 / Math.log(b);
}

/** 1 - p for each class, from the sum of the others where p is large. */
export function remainders(p) {
  return Array.from(p, (value, i) => {
    if (!(value > 0.5)) return 1 - value;
    return sum(Array.from(p, (other, j) => (j === i ? 0 : other)));
  });
}

/** d p[i] / d x[j] = p[i] (1 if i = j else 0, minus p[j]) / T; also the Hessian of smoothmax. */
export function jacobian(p, T) {
  const q = remainders(p);
  const scaled = (v) => (v === 0 ? 0 : v / T);
  return Array.from(p, (a, i) =>
    Array.from(p, (b, j) => scaled(i === j ? a * q[i] : -a * b)));
}

/** Math.min and Math.max of any number of values: as arguments, 200,000 of them are too many. */
export function smallest(values) {
  return values.reduce((a, b) => Math.min(a, b), Infinity);
}

export function largest(values) {
  return values.reduce((a, b) => Math.max(a, b), -Infinity);
}

/** The normaliser x / sum x, and the one after subtracting the minimum: what softmax is not. */
export function divideBySum(x) {
  const total = sum(x);
  return Array.from(x, (v) => v / total);
}

export function shiftThenDivide(x) {
  const low = smallest(x);
  return divideBySum(Array.from(x, (v) => v - low));
}
