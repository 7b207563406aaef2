// 6: the Jacobian of softmax, which is the Hessian of log-sum-exp, and how it vanishes.

import { jacobian as matrixOf, remainders } from "../math/softmax.js";
import { plain, show } from "../math/temperature.js";
import { temperatureSlider } from "../view/controls.js";
import { axes, circle, fitted, nameWidth, path, rect, round, scale, svg, text } from "../view/chart.js";
import { h, printable } from "../view/dom.js";
import { temperature as pythonTemperature } from "./logits.js";

const MOST = 20; // classes of the heat map

/** The classes of the map, all or the largest, and the matrix of their derivatives. */
function found({ view, state }) {
  const items = view.n <= MOST ? view.items : [...view.items].sort((a, b) => b.p - a.p || a.i - b.i).slice(0, MOST);
  // What the map leaves out still counts in 1 - p: it comes last, and is cut off again.
  const others = Math.max(1 - items.reduce((a, { p }) => a + p, 0), 0);
  const p = [...items.map((item) => item.p), ...(view.n > MOST ? [others] : [])];
  const matrix = matrixOf(p, state.T).slice(0, items.length).map((line) => line.slice(0, items.length));
  const slopes = remainders(p).slice(0, items.length).map((q, i) => p[i] * q);
  return { items, matrix, slopes };
}

export const jacobian = {
  title: "Derivatives: the Jacobian",
  short: "Jacobian",
  formula: "∂p_i / ∂x_j = p_i (δ_{i j} − p_j) / T = ∂² (T log Σ_l exp(x_l / T)) / ∂x_i ∂x_j",
  notice: "Blue: raising logit j raises p of class i; orange: it lowers it. Each row adds up to 0. It is also the Hessian of log-sum-exp. When one class has all the mass, every p (1 − p) is 0 and no gradient passes.",
  presets: [
    ["Undecided", { source: "own", x: [1, 0.8, 0.6, 0.4], names: [], T: 1 }],
    ["Saturated", { source: "own", x: [20, 0, -3, 1], names: [], T: 1 }],
    ["Rescued by T = 10", { source: "own", x: [20, 0, -3, 1], names: [], T: 10 }],
  ],

  controls: (context) => temperatureSlider(context),

  figure(context) {
    const { width } = context;
    const { items, matrix, slopes } = found(context);
    const names = nameWidth(items.map((item) => item.name), 90);
    const wide = width > 700;
    const size = Math.min((wide ? width * 0.5 : width) - names - 10, 380);
    const cell = size / items.length;
    const largest = Math.max(...matrix.flat().map(Math.abs).filter(Number.isFinite), 1e-300);
    const top = 46;
    const bottom = top + size;
    const left2 = wide ? width * 0.5 + 50 : 44;
    const top2 = wide ? 60 : bottom + 66;
    const box = { left: left2, top: top2, right: width - 12, bottom: top2 + 220 };
    const sx = scale([0, 1], [box.left, box.right]);
    const sy = scale([0, 0.25], [box.bottom, box.top]);
    const curve = Array.from({ length: 61 }, (_, i) => [sx(i / 60), sy((i / 60) * (1 - i / 60))]);
    return svg(width, wide ? Math.max(bottom, box.bottom) + 48 : box.bottom + 48, "The Jacobian of softmax", "Derivative of each probability by each logit",
      text(0, 16, `∂p / ∂x, largest ${show(largest > 1e-300 ? largest : 0)}`, { class: "name strong" }),
      text(names + 4, 36, "by logit of →", { class: "small" }),
      matrix.map((line, i) => h("g", {},
        text(names - 2, top + cell * (i + 0.5) + 4, fitted(items[i].name, names - 4), { class: cell < 15 ? "tiny" : "small", "text-anchor": "end" }),
        line.map((v, j) => {
          const share = Number.isFinite(v) ? Math.abs(v) / largest : 1;
          return [
            rect(names + 4 + cell * j, top + cell * i, cell - 1, cell - 1, v > 0 ? "heat up" : "heat down", {
              "fill-opacity": v === 0 ? 0.04 : round(0.04 + 0.5 * Math.sqrt(share)), "data-i": i, "data-j": j, "data-value": plain(v),
            }),
            cell > 46 && text(names + 4 + cell * (j + 0.5), top + cell * (i + 0.5) + 4, show(v, 2), { class: "cell", "text-anchor": "middle" }),
          ];
        }))),
      text(box.left - 30, box.top - 30, "p (1 − p): what a gradient keeps", { class: "name strong" }),
      axes({ ...box, x: sx, y: sy, xTicks: [0, 0.25, 0.5, 0.75, 1], yTicks: [0, 0.1, 0.2], xName: "p" }),
      path(curve, 0),
      items.map((item, i) => circle(sx(item.p || 0), sy(slopes[i] || 0), 5, "dot vermilion")),
      items.length <= 6 && items.map((item, i) => text(sx(item.p || 0) + (item.p > 0.5 ? -9 : 9), sy(slopes[i] || 0) + 4 + 14 * items.slice(0, i).filter((o) => Math.abs(o.p - item.p) < 0.02).length, printable(item.name, 8), { class: "small", "text-anchor": item.p > 0.5 ? "end" : "start" })));
  },

  numbers(context) {
    const { matrix, slopes } = found(context);
    return [
      ["trace", "Σ p (1 − p)", slopes.reduce((a, b) => a + b, 0)],
      ["largest", "largest derivative", Math.max(...matrix.flat().map(Math.abs))],
      ["rows", "sum of the first row", context.view.n <= MOST ? matrix[0].reduce((a, b) => a + b, 0) : "not all shown", (v) => (Math.abs(v) < 1e-14 ? "0" : show(v))],
    ];
  },

  python: ({ row, state }) => [
    ...row.code,
    `T = ${pythonTemperature(state.T)}`,
    "jacobian = hm.softmax_jacobian(x, temperature=T)",
    "hessian = hm.smoothmax_hessian(x, temperature=T)  # the same matrix",
    "trace = float((hm.softmax(x, temperature=T) * (1 - hm.softmax(x, temperature=T))).sum())",
  ],
};
