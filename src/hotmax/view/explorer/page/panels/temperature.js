// 2: probabilities over temperature.

import { distribution, signOf } from "../math/softmax.js";
import { HALF, show, stepOf, temperatureAt } from "../math/temperature.js";
import { temperatureSlider } from "../view/controls.js";
import { axes, circle, clamp, draggable, fitted, line, path, rect, scale, svg, text } from "../view/chart.js";
import { h } from "../view/dom.js";
import { temperature as pythonTemperature } from "./logits.js";

const EVERY = 5; // steps of the slider between two points of a curve; four times that for many classes
const MANY = 2000;
const MARKS = [[0, "0"], [100, "0.1"], [200, "1"], [300, "10"], [400, "∞"], [500, "−10"], [600, "−1"], [700, "−0.1"]];

let known = {};

/** (step, p of the classes shown, entropy) along the slider; kept until the row changes. */
function curves({ row, view, server }, last) {
  if (!row.whole) {
    const answer = server.ask("sweep", "sweep", { row: row.row, classes: row.index.slice(0, 12).join(",") });
    return answer ? { items: view.items.slice(0, 12), points: answer.points.filter(([step]) => step <= last) } : null;
  }
  if (known.x === row.x && known.last === last) return known.found;
  // The largest at either end of the scale: at T = 1 and at T = -1.
  const order = (T) => Array.from(distribution(row.x, T).p, (p, i) => [p, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).map(([, i]) => i);
  const chosen = row.n <= 24 ? row.x.map((_, i) => i) : [...new Set([...order(1).slice(0, 200), ...(last > HALF ? order(-1).slice(0, 12) : [])])];
  const points = [];
  for (let step = 0; step <= last; step += row.n > MANY ? 4 * EVERY : EVERY) {
    const found = distribution(row.x, temperatureAt(step));
    points.push([step, chosen.map((i) => found.p[i]), found.entropy]);
  }
  known = { x: row.x, last, found: { items: chosen.map((i) => ({ i, name: row.name(i) })), points } };
  return known.found;
}

export const temperature = {
  title: "Probabilities over temperature",
  short: "Temperature",
  formula: "lim_{T→0} p = 1/k on the k largest,   lim_{T→∞} p_i = 1/n",
  notice: "From left to right the winner hands its mass to the others, until at ∞ all have the same. The order of the classes never changes while T > 0; equal logits stay equal.",
  presets: [
    ["Two that tie", { source: "own", x: [3, 3, 1, 0], names: [], T: 0.3 }],
    ["Far apart", { source: "own", x: [10, 5, 0], names: [], T: 2 }],
    ["Below 0", { source: "own", x: [1, 2, 3], names: [], T: -1 }],
  ],

  controls: (context) => temperatureSlider(context),

  figure(context) {
    const { state, set, store, width, view } = context;
    const last = signOf(state.T) < 0 ? 2 * HALF : HALF;
    const found = curves(context, last);
    if (!found) return h("p", { class: "quiet" }, "Computing the curves…");
    const names = Math.min(110, width / 4);
    const box = { left: 40, top: 26, right: width - names - 10, bottom: 310 };
    const x = scale([0, last], [box.left, box.right]);
    const y = scale([0, 1], [box.bottom, box.top]);
    const at = clamp(stepOf(state.T), 0, last);
    const marks = MARKS.filter(([step]) => step <= last && (width > 480 || last === HALF || step % 200 === 0));
    const ends = found.points[0][1];
    const tops = ends.filter((p) => p > 0).length;
    const placed = spread(found.items.map((item, j) => ({ j, y: y(found.points[found.points.length - 1][1][j]) })).slice(0, 12), box.top + 6, box.bottom);
    return svg(width, 372, "Probabilities over temperature", `The cursor is at ${show(state.T)}`,
      axes({ ...box, x, y, xTicks: marks, yTicks: [0, 0.25, 0.5, 0.75, 1], xName: "temperature T", yName: "probability" }),
      found.items.map((item, j) => path(found.points.map(([step, p]) => [x(step), y(p[j])]), j, found.items.length > 24 ? "thin" : "")),
      found.items.slice(0, 60).map((item, j) => ends[j] > 0 && circle(x(0), y(ends[j]), 4.5, `dot ${["blue", "vermilion", "green", "pink", "amber", "sky"][j % 6]}`)),
      tops > 1 && text(x(0) + 8, y(1 / tops) - 8, `${tops} tie at 1/${tops}`, { class: "small" }),
      line(x(HALF), box.top, x(HALF), box.bottom, "limit"),
      text(x(HALF) - 4, y(1 / view.present) - 8, `1/${view.present}`, { class: "small", "text-anchor": "end" }),
      placed.map(({ j, y: height }) => text(box.right + 8, height + 4, fitted(found.items[j].name, names - 4), { class: `label ${["blue", "vermilion", "green", "pink", "amber", "sky"][j % 6]}` })),
      h("g", {
        class: "handle cursor",
        ...draggable({
          label: "Temperature", value: Math.round(at), valueText: `temperature ${show(state.T)}`, low: 0, high: last, step: 4, page: 40,
          at: ([px]) => Math.round(((px - box.left) / (box.right - box.left)) * last), change: (step) => set({ T: temperatureAt(Math.round(step)) }, "T"), end: () => store.endGesture(),
        }),
      },
        rect(x(at) - 12, box.top, 24, box.bottom - box.top, "hit"), line(x(at), box.top - 6, x(at), box.bottom, "cursor-line"),
        circle(x(at), box.top - 4, 7, "knob")),
      view.items.slice(0, 200).map((item) => {
        const j = found.items.findIndex((each) => each.i === item.i);
        return j >= 0 && j < 60 && circle(x(at), y(item.p), 3.5, `dot ${["blue", "vermilion", "green", "pink", "amber", "sky"][j % 6]}`);
      }));
  },

  numbers: ({ view, state }) => [
    ["T", "temperature", state.T],
    ["entropy", "entropy, nats", view.entropy],
    ["most", "entropy at ∞, log n", Math.log(view.present)],
    ["largest", "largest probability", view.items.reduce((a, { p }) => Math.max(a, p), 0)],
  ],

  python: ({ row, state }) => [
    ...row.code,
    `T = ${pythonTemperature(state.T)}`,
    "p = hm.softmax(x, temperature=T)",
    "entropy = hm.entropy(x, temperature=T)",
    `sweep = hm.softmax([x] * 6, temperature=[[t] for t in (0, 0.1, 1, 10, 100, float("inf"))])`,
  ],
};

/** Labels pushed apart, so that none covers another. */
function spread(labels, top, bottom) {
  const sorted = [...labels].sort((a, b) => a.y - b.y);
  sorted.forEach((label, i) => (label.y = Math.max(label.y, i ? sorted[i - 1].y + 15 : top)));
  for (let i = sorted.length - 1; i >= 0; i--) {
    sorted[i].y = Math.min(sorted[i].y, i < sorted.length - 1 ? sorted[i + 1].y - 15 : bottom);
  }
  return sorted;
}
