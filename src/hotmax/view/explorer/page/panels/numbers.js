// 4: numbers that break the usual formulas, digit by digit.

import { DIGITS, correctDigits, exact, maxTrick, naive } from "../math/precision.js";
import { plain } from "../math/temperature.js";
import { checkbox } from "../view/controls.js";
import { rect, round, svg, text } from "../view/chart.js";
import { h, printable } from "../view/dom.js";
import { largestOnly } from "../view/rows.js";

const MOST = 4; // classes
const METHODS = [["naive", "exp, divide by the sum", naive], ["max", "max subtracted first", maxTrick], ["hotmax", "hotmax", exact]];
const TYPES = ["float32", "float64"];

/** A number to all the digits of its type, as Python would write it. */
function digitsOf(value, type) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  return value.toPrecision(DIGITS[type]);
}

/** How many characters of a number show its first `count` digits. */
function charactersFor(shown, count) {
  let seen = 0;
  let started = false;
  for (let i = 0; i < shown.length; i++) {
    if (shown[i] === "e") return i;
    if (/[1-9]/.test(shown[i])) started = true;
    if (started && /\d/.test(shown[i])) seen++;
    if (seen >= count) return i + 1;
  }
  return shown.length;
}

function found({ row, state }) {
  const x = Array.from(row.x.slice(0, 200));
  return TYPES.flatMap((type) => {
    const truth = exact(x, type, state.log);
    return METHODS.map(([id, title, method]) => ({
      type, id, title, values: method(x, type, state.log).slice(0, MOST),
      correct: method(x, type, state.log).slice(0, MOST).map((v, i) => (Object.is(v, truth[i]) || v === truth[i] ? DIGITS[type] : correctDigits(v, truth[i], type))),
    }));
  });
}

export const numbers = {
  title: "Numbers that break",
  short: "Numerics",
  formula: "exp(x_i) / Σ_j exp(x_j) = exp(x_i − m) / Σ_j exp(x_j − m),   m = max x",
  notice: "On paper all three lines are equal. In a computer exp overflows beyond 88 (float32) or 709 (float64) and gives nan; subtracting the maximum cures that, but in log space it still loses what log1p keeps. Wrong digits are struck through.",
  presets: [
    ["[1000, 1000, 1000]", { source: "own", x: [1000, 1000, 1000], names: [], log: false }],
    ["[−1, 10, 5000]", { source: "own", x: [-1, 10, 5000], names: [], log: false }],
    ["[0, −40] in log space", { source: "own", x: [0, -40], names: [], log: true }],
    ["[0, −200]: too small for float32", { source: "own", x: [0, -200], names: [], log: true }],
  ],

  part: true,
  controls: ({ state, set }) => checkbox("In log space: log p", state.log, (log) => set({ log }), { id: "log-space" }),

  figure(context) {
    const { width, row } = context;
    const lines = found(context);
    const classes = Math.min(row.n, MOST);
    const block = 46 + METHODS.length * (20 + classes * 22) + 10;
    const wide = width > 720;
    const size = wide ? width / 2 : width;
    const letter = 8.45;
    return svg(width, wide ? block : 2 * block, "Digit by digit", "Digits that are right, and those that are wrong",
      TYPES.map((type, t) => {
        const left = wide ? t * size : 0;
        const top = wide ? 0 : t * block;
        return h("g", {},
          text(left, top + 18, `${type}, ${DIGITS[type]} digits`, { class: "name strong" }),
          lines.filter((each) => each.type === type).map((each, m) => {
            const start = top + 46 + m * (20 + classes * 22);
            const least = Math.min(...each.correct);
            return h("g", {},
              text(left, start, each.title, { class: each.id === "hotmax" ? "small strong" : "small" }),
              text(left + size - 16, start, least === DIGITS[type] ? "all digits right" : least === 0 ? "broken" : `${least} digits right`, { class: least === DIGITS[type] ? "small right" : "small wrong", "text-anchor": "end" }),
              each.values.map((value, i) => {
                const shown = digitsOf(value, type);
                const good = each.correct[i] === 0 ? 0 : each.correct[i] >= DIGITS[type] ? shown.length : charactersFor(shown, each.correct[i]);
                const y = start + 18 + i * 22;
                return h("g", { "data-type": type, "data-method": each.id, "data-class": i, "data-value": plain(value), "data-correct": each.correct[i] },
                  text(left + 4, y, printable(row.name(row.index ? row.index[i] : i), 7), { class: "small" }),
                  good < shown.length && rect(left + 62 + good * letter, y - 13, (shown.length - good) * letter, 18, "bad-digits"),
                  h("text", { x: left + 62, y, class: "digits", textLength: round(shown.length * letter) }, h("tspan", {}, shown.slice(0, good)), h("tspan", { class: "wrong" }, shown.slice(good))));
              }));
          }));
      }));
  },

  numbers(context) {
    const lines = found(context);
    const least = (type, id) => Math.min(...lines.find((each) => each.type === type && each.id === id).correct);
    return [
      ["naive32", "digits right, exp in float32", least("float32", "naive")],
      ["naive64", "digits right, exp in float64", least("float64", "naive")],
      ["max64", "digits right, max subtracted, float64", least("float64", "max")],
    ];
  },

  python({ row, state }) {
    const name = state.log ? "log_softmax" : "softmax";
    return [...row.code, ...largestOnly(row, state), `p = hm.${name}(x)`, `p32 = hm.${name}(np.asarray(x, np.float32))`, "e = np.exp(x)", `naive = ${state.log ? "np.log(e / e.sum())" : "e / e.sum()"}`];
  },
};
