// Temperatures on a slider: 0, a logarithmic range, infinity, and the negative ones beyond it.

export const ENDS = [0.01, 100];
export const HALF = 400; // steps from 0 to infinity; as many again back to -0

/** The temperature at a step of 0 .. 2 * HALF. */
export function temperatureAt(step) {
  if (step > HALF) return -temperatureAt(2 * HALF - step);
  if (step <= 0) return 0;
  if (step >= HALF) return Infinity;
  const [low, high] = ENDS;
  const exact = low * (high / low) ** ((step - 1) / (HALF - 2));
  return Number(exact.toPrecision(3));
}

/** Where a temperature lies on the slider, as a number from 0 to 2 * HALF. */
export function stepOf(T) {
  if (T < 0 || Object.is(T, -0)) return T === -Infinity ? HALF : 2 * HALF - stepOf(-T);
  if (T === 0) return 0;
  if (T === Infinity) return HALF;
  const [low, high] = ENDS;
  const at = 1 + ((HALF - 2) * Math.log(T / low)) / Math.log(high / low);
  return Math.min(Math.max(at, 0.5), HALF - 0.5);
}

/** A number that a person typed; null if it is none. Infinity is "inf" or "∞". */
export function parseNumber(text) {
  const plain = String(text).trim().replace(/^−/, "-").toLowerCase();
  const infinite = /^([+-]?)(inf|infinity|∞)$/.exec(plain);
  if (infinite) return infinite[1] === "-" ? -Infinity : Infinity;
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/.test(plain)) return null;
  return Number(plain);
}

/** A number for people: four digits unless more are asked for, a true minus, ∞. */
export function show(value, digits = 4) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return Object.is(value, -0) ? "−0" : "0";
  const size = Math.abs(value);
  const text = size >= 1e6 || size < 1e-4 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
  return text.replace(/^-/, "−").replace("e+", "e").replace("e-", "e−");
}

/** A number as Python and the address have it. */
export function plain(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  return Object.is(value, -0) ? "-0.0" : String(value);
}
