// 3: order, shift and scale; beside softmax the two sum normalisers.

import { distribution, divideBySum, shiftThenDivide } from "../math/softmax.js";
import { plain, show } from "../math/temperature.js";
import { slider } from "../view/controls.js";
import { fitted, line, nameWidth, rect, scale, svg, text } from "../view/chart.js";
import { h } from "../view/dom.js";
import { largestOnly } from "../view/rows.js";

const METHODS = [
  ["softmax", "softmax", (x) => Array.from(distribution(x, 1).p)],
  ["sum", "x / Σ x", divideBySum],
  ["minimum", "(x − min) / Σ (x − min)", shiftThenDivide],
];
const MOST = 12; // classes: more would not be compared by eye
const ROW = 26;

/** Before and after y = scale * x + shift, for each method. */
function compared({ row, state }) {
  const x = row.x.slice(0, 200);
  const y = Array.from(x, (v) => state.scale * v + state.shift);
  return METHODS.map(([id, title, method]) => {
    const before = method(x);
    const after = method(y);
    const change = before.reduce((a, p, i) => Math.max(a, Math.abs(after[i] - p)), 0);
    const broken = [...before, ...after].some((p) => !Number.isFinite(p));
    const negative = after.some((p) => p < 0) ? "below 0: no probability" : before.some((p) => p < 0) ? "before: below 0, no probability" : "";
    return { id, title, before, after, change: broken ? NaN : change, fault: broken ? "the sum is 0: no answer" : negative };
  });
}

/** Do two lists put their classes in the same order? */
function sameOrder(a, b) {
  return a.every((v, i) => a.every((w, j) => !(v < w) || b[i] < b[j] || (b[i] === b[j] && v === w)));
}

export const order = {
  title: "Order, shift and scale",
  short: "Order, shift, scale",
  formula: "softmax(x + c) = softmax(x),   softmax(c x) = softmax at T = 1/c",
  notice: "Pale bars are before, full bars after y = a·x + c. A shift changes nothing in softmax; a scale acts as a temperature and keeps the order while a > 0. Dividing by the sum obeys neither, and breaks on negative numbers.",
  presets: [
    ["Shift by 100", { shift: 100, scale: 1 }],
    ["Double", { shift: 0, scale: 2 }],
    ["Turn round", { shift: 0, scale: -1 }],
    ["Sum is 0", { source: "own", x: [-1, 0, 1], names: [], shift: 0, scale: 1 }],
  ],

  controls: ({ state, set, store }) => [
    slider({ id: "shift", label: "Add c =", value: state.shift, low: -10, high: 10, step: 0.1, change: (shift) => set({ shift }, "shift"), end: () => store.endGesture() }),
    slider({ id: "scale", label: "Multiply by a =", value: state.scale, low: -3, high: 5, step: 0.1, change: (scale) => set({ scale }, "scale"), end: () => store.endGesture() }),
  ],

  figure(context) {
    const { row, width } = context;
    const found = compared(context);
    const order = Array.from(row.x, (_, i) => i).slice(0, MOST);
    const names = nameWidth(order.map((i) => row.name(row.index ? row.index[i] : i)), width / 5);
    const columns = width < 560 ? 1 : 3;
    const size = (width - names) / columns;
    const block = 54 + ROW * order.length + 10;
    return svg(width, block * Math.ceil(METHODS.length / columns), "Before and after", "Three ways to normalise, each before and after the change",
      found.map((method, m) => {
        const left = names + (m % columns) * size + 8;
        const top = Math.floor(m / columns) * block;
        const shown = order.flatMap((i) => [method.before[i], method.after[i]]).filter(Number.isFinite).map((v) => Math.min(Math.max(v, -2), 2));
        const range = [Math.min(0, ...shown), Math.max(1, ...shown)];
        const p = scale(range, [left, left + size - 66]);
        const bar = (v, y, height, className) => {
          const [a, b] = [p(0), p(Math.min(Math.max(v, range[0]), range[1]))].sort((s, t) => s - t);
          return Number.isFinite(v) && rect(a, y, b - a, height, className);
        };
        return h("g", {},
          text(left, top + 16, method.title, { class: "name strong" }),
          text(left, top + 34, method.fault || (method.change < 1e-12 ? (method.id === "minimum" ? "unchanged; the smallest is always 0" : "unchanged") : `moved by up to ${show(method.change, 2)}`), { class: method.fault ? "small wrong" : "small" }),
          line(p(0), top + 44, p(0), top + block - 8, "axis"),
          order.map((i, j) => {
            const y = top + 48 + ROW * j;
            const bad = method.after[i] < 0 || !Number.isFinite(method.after[i]);
            return h("g", {},
              (columns === 1 || m === 0) && text(names, y + 15, fitted(row.name(row.index ? row.index[i] : i), names - 6), { "text-anchor": "end" }),
              bar(method.before[i], y + 2, 7, method.before[i] < 0 ? "bar vermilion faint" : "bar pale"), bar(method.after[i], y + 9, 10, bad ? "bar vermilion" : "bar blue"),
              text(left + size - 60, y + 17, show(method.after[i], 3), { class: bad ? "value wrong" : "value", "data-method": method.id, "data-value": plain(method.after[i]), "data-class": i }));
          }));
      }));
  },

  numbers(context) {
    const [softmax] = compared(context);
    const x = Array.from(context.row.x.slice(0, 200));
    return [
      ["change", "largest change of softmax", softmax.change],
      ["temperature", "the scale as a temperature, 1/a", 1 / context.state.scale],
      ["order", "order of the classes kept", sameOrder(x, softmax.after) ? "yes" : "no"],
    ];
  },

  part: true,
  python: ({ row, state }) => [
    ...row.code,
    ...largestOnly(row, state),
    `y = ${plain(state.scale)} * np.asarray(x) + ${plain(state.shift)}`,
    "before, after = hm.softmax(x), hm.softmax(y)",
    "change = np.abs(after - before).max()",
  ],
};
