// 7: cross entropy against the absolute error, the gradient p - y, and label smoothing.

import { absoluteError, crossEntropy, target } from "../math/losses.js";
import { plain, show } from "../math/temperature.js";
import { select, slider, temperatureSlider } from "../view/controls.js";
import { axes, circle, fitted, line, nameWidth, path, rect, scale, svg, text, ticks } from "../view/chart.js";
import { h, printable } from "../view/dom.js";
import { temperature as pythonTemperature } from "./logits.js";

const MOST = 10; // classes with a bar
const ROW = 24;

function found({ row, state, view }) {
  const label = Math.min(state.k, row.n - 1);
  if (!row.whole) {
    const place = row.index.indexOf(label);
    return { label: place < 0 ? row.index[0] : label, remote: true, ...remoteLosses(view, place < 0 ? row.index[0] : label) };
  }
  const options = { T: state.T, smoothing: state.smoothing };
  return {
    label, p: view.p[label], entropy: crossEntropy(row.x, label, options), error: absoluteError(row.x, label, options),
    plain: crossEntropy(row.x, label, { T: state.T }).loss, goal: target(Array.from(view.p, Math.log), label, state.smoothing),
  };
}

/** Of a row that is not whole here: what the classes shown say, without smoothing. */
function remoteLosses({ items }, label) {
  const own = items.find((item) => item.i === label);
  return {
    p: own.p, plain: -own.logp, goal: null, entropy: { loss: -own.logp, gradient: new Map(items.map((item) => [item.i, item.p - (item.i === label ? 1 : 0)])) },
    error: { loss: 1 - own.p },
  };
}

export const loss = {
  title: "Losses and their gradients",
  short: "Loss",
  formula: "L = −Σ_i y_i log p_i,   ∂L / ∂x = (p − y) / T,   y = (1 − s) · one-hot + s / n",
  notice: "The less probable the right class, the harder cross entropy pulls; the absolute error 1 − p lets go of confident mistakes. Label smoothing s makes certainty itself cost: with 1000 classes and p = 0.99 the loss goes from 0.010 to 1.159 at s = 0.1.",
  presets: [
    ["Confidently wrong", { source: "own", x: [-6, 4, 0], names: [], T: 1, k: 0, smoothing: 0 }],
    ["1000 classes, p = 0.99", { source: "own", x: thousand(), names: [], T: 1, k: 0, smoothing: 0 }],
    ["… with smoothing 0.1", { source: "own", x: thousand(), names: [], T: 1, k: 0, smoothing: 0.1 }],
  ],

  controls: (context) => {
    const { row, state, set, store, view } = context;
    const options = view.items.slice(0, 200).map((item) => [item.i, printable(item.name, 24)]);
    const truth = row.label ?? null;
    return [
      select("The right class", found(context).label, options, (k) => set({ k: Number(k) }), "label-k"),
      truth !== null && truth !== state.k && h("button", { type: "button", onclick: () => set({ k: truth }) }, `Use its label, ${printable(row.name(truth), 20)}`),
      row.whole && slider({ id: "smoothing", label: "Label smoothing s =", value: state.smoothing, low: 0, high: 0.5, step: 0.01, change: (smoothing) => set({ smoothing }, "smoothing"), end: () => store.endGesture() }),
      temperatureSlider(context),
    ];
  },

  figure(context) {
    const { width, view, row } = context;
    const now = found(context);
    const items = [...view.items].sort((a, b) => (b.i === now.label) - (a.i === now.label) || b.p - a.p || a.i - b.i).slice(0, MOST);
    const gradient = (i) => (now.entropy.gradient instanceof Map ? now.entropy.gradient.get(i) : now.entropy.gradient[i]);
    const wide = width > 700;
    const names = nameWidth(items.map((item) => item.name), 90);
    const size = wide ? width * 0.5 : width;
    const top = 50;
    const most = items.reduce((a, item) => Math.max(a, Math.abs(gradient(item.i)) || 0), 1e-12);
    const reach = Number.isFinite(most) ? Math.max(most, 0.25) : 1;
    const g = scale([-reach, reach], [names + 10, size - 76]);
    const bottom = top + ROW * items.length + 10;
    const left2 = wide ? size + 46 : 46;
    const top2 = wide ? 56 : bottom + 56;
    const box = { left: left2, top: top2, right: width - 12, bottom: top2 + 220 };
    const sx = scale([0, 1], [box.left, box.right]);
    const sy = scale([0, 1], [box.bottom, box.top]);
    const grid = Array.from({ length: 101 }, (_, i) => i / 100);
    const p = now.p || 0;
    return svg(width, wide ? Math.max(bottom, box.bottom + 48) : box.bottom + 48, "Gradient of the loss", "How each logit is pulled, and how hard the right one is",
      text(0, 16, "gradient of cross entropy by each logit", { class: "name strong" }),
      text(g(0) - 6, 38, "← raise the logit", { class: "small", "text-anchor": "end" }), text(g(0) + 6, 38, "lower it →", { class: "small" }),
      line(g(0), 44, g(0), bottom - 4),
      items.map((item, j) => {
        const v = gradient(item.i);
        const y = top + ROW * j;
        const [a, b] = [g(0), g(Math.min(Math.max(v || 0, -reach), reach))].sort((s, t) => s - t);
        return h("g", {},
          text(names, y + 16, fitted(item.name, names - 4), { class: item.i === now.label ? "strong" : "", "text-anchor": "end" }),
          rect(a, y + 3, b - a, ROW - 8, v < 0 ? "bar blue" : "bar vermilion"),
          text(size - 68, y + 16, show(v), { class: "value", "data-gradient": item.i, "data-value": plain(v) }));
      }),
      view.n > MOST && text(names + 10, bottom + 6, `and ${(view.n - MOST).toLocaleString("en")} more classes`, { class: "small" }),
      text(box.left - 30, box.top - 32, "pull on the right logit", { class: "name strong" }),
      axes({ ...box, x: sx, y: sy, xTicks: [0, 0.25, 0.5, 0.75, 1], yTicks: ticks(0, 1, 4), xName: `p of ${printable(row.name(now.label), 20)}` }),
      path(grid.map((v) => [sx(v), sy(1 - v)]), 0), path(grid.map((v) => [sx(v), sy(v * (1 - v))]), 1),
      text(box.left, box.top - 10, "cross entropy: 1 − p", { class: "small label blue" }), text(box.right, box.top - 10, "absolute error: p (1 − p)", { class: "small label vermilion", "text-anchor": "end" }),
      line(sx(p), box.top, sx(p), box.bottom, "cursor-line"), circle(sx(p), sy(1 - p), 6, "dot blue"), circle(sx(p), sy(p * (1 - p)), 6, "dot vermilion"));
  },

  numbers(context) {
    const now = found(context);
    return [
      ["loss", context.state.smoothing && context.row.whole ? `cross entropy, smoothing ${show(context.state.smoothing)}` : "cross entropy, nats", now.entropy.loss],
      ["plain", "without smoothing, −log p", now.plain],
      ["mae", "absolute error, 1 − p", now.error.loss],
      ["p", "p of the right class", now.p],
    ];
  },

  python(context) {
    const { row, state } = context;
    const { label } = found(context);
    return [
      ...row.code,
      `T = ${pythonTemperature(state.T)}`,
      `loss, gradient = hm.cross_entropy(x, ${label}, temperature=T${row.whole && state.smoothing ? `, label_smoothing=${plain(state.smoothing)}` : ""}, return_grad=True)`,
      `mae = hm.mae_loss(x, ${label}, temperature=T)`,
    ];
  },
};

/** 1000 classes, the first with p = 0.99 and the others alike. */
function thousand() {
  return [Number(Math.log(999 * 99).toFixed(6)), ...new Array(999).fill(0)];
}
