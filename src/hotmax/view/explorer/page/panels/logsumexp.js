// 5: log-sum-exp, the smooth maximum, and its gradient.

import { distribution, signOf } from "../math/softmax.js";
import { show } from "../math/temperature.js";
import { select, temperatureSlider } from "../view/controls.js";
import { axes, circle, draggable, line, path, rect, scale, svg, text, ticks } from "../view/chart.js";
import { h, printable } from "../view/dom.js";
import { rangeOf, temperature as pythonTemperature } from "./logits.js";

const POINTS = 121;

/** The classes with their logits, and of a long row the rest as one logit more. */
function looked({ row, state, view }) {
  const long = view.rest.count > 0;
  const items = long ? view.items : Array.from(row.x, (x, i) => ({ i, x, name: row.name(i) }));
  const k = Math.min(state.k, items.length - 1);
  const x = items.map((item) => item.x);
  const rest = long && Number.isFinite(state.T) && state.T ? view.smoothmax + state.T * Math.log(view.rest.mass) : -Infinity;
  return { items, k, T: state.T, x: Number.isFinite(rest) ? [...x, rest] : x, count: view.present, editable: state.source === "own" && !long };
}

export const logsumexp = {
  title: "Log-sum-exp",
  short: "Log-sum-exp",
  formula: "max x ≤ T log Σ_i exp(x_i / T) ≤ max x + T log n,   ∂/∂x_k = p_k",
  notice: "Move one logit: the smooth maximum (blue) never leaves the band between max and max + T log n, and its slope at the point is that class's probability. As T → 0 the band closes.",
  presets: [
    ["Equal logits: the top of the band", { source: "own", x: [1, 1, 1, 1], names: [], T: 1, k: 0 }],
    ["One leads: the bottom", { source: "own", x: [5, 0, -1], names: [], T: 1, k: 0 }],
    ["Nearly hard, T = 0.1", { T: 0.1 }],
  ],

  controls: (context) => {
    const { items, k: chosen } = looked(context);
    const { set } = context;
    return [temperatureSlider(context),
      select("Logit to move", chosen, items.map((item, i) => [i, printable(item.name, 24)]), (k) => set({ k: Number(k) }), "class-k")];
  },

  figure(context) {
    const { width, state, set, store } = context;
    const { items, x, k, T, count, editable } = looked(context);
    const range = rangeOf(x);
    const others = Array.from(x, (v, i) => (i === k ? -Infinity : v));
    const at = (v) => Array.from(others, (o, i) => (i === k ? v : o));
    const sign = signOf(T);
    const bandOf = (list) => {
      const end = list.reduce((a, v) => (sign * v > sign * a ? v : a), sign * -Infinity);
      return [end, end + T * Math.log(count)];
    };
    const finite = Number.isFinite(T) && x.every((v) => v !== Infinity);
    const points = Array.from({ length: POINTS }, (_, i) => range[0] + ((range[1] - range[0]) * i) / (POINTS - 1));
    const lists = points.map((v) => at(v));
    const smooth = lists.map((list) => distribution(list, T).smoothmax);
    const bands = lists.map(bandOf);
    const now = Number.isFinite(x[k]) ? x[k] : range[0];
    const here = distribution(at(now), T);
    const low = Math.max(Math.min(...bands.flat().filter(Number.isFinite), range[0]), -1e6);
    const high = Math.min(Math.max(...bands.flat().filter(Number.isFinite), range[1] / 2), 1e6);
    const box = { left: 46, top: 26, right: width - 14, bottom: 310 };
    const sx = scale(range, [box.left, box.right]);
    const sy = scale([low, high], [box.bottom, box.top]);
    const slope = here.p[k];
    const reach = (range[1] - range[0]) / 7;
    const band = finite && h("path", {
      class: "band",
      d: `M${points.map((v, i) => `${sx(v)} ${sy(bands[i][0])}`).join("L")}L${points.map((v, i) => `${sx(v)} ${sy(bands[i][1])}`).reverse().join("L")}Z`,
    });
    return svg(width, 356, "Log-sum-exp over one logit", `At ${show(now)} the smooth maximum is ${show(here.smoothmax)}`,
      axes({ ...box, x: sx, y: sy, xTicks: ticks(...range), yTicks: ticks(low, high), xName: `logit of ${printable(items[k].name, 24)}`, yName: T < 0 ? "smooth minimum" : "smooth maximum" }),
      !finite && text(box.left + 20, box.top + 40, T === 0 ? "" : "T log n is infinite: the band has no top.", { class: "small" }),
      band,
      finite && path(points.map((v, i) => [sx(v), sy(bands[i][0])]), 1, "thin"), finite && path(points.map((v, i) => [sx(v), sy(bands[i][1])]), 2, "thin"),
      finite && path(points.map((v, i) => [sx(v), sy(smooth[i])]), 0),
      finite && line(sx(now - reach), sy(here.smoothmax - slope * reach), sx(now + reach), sy(here.smoothmax + slope * reach), "tangent"),
      finite && text(box.left + 6, sy(bands[0][1]) - 7, T < 0 ? "min + T log n" : "max + T log n", { class: "small label green" }),
      finite && text(box.left + 6, sy(bands[0][0]) + 16, T < 0 ? "min" : "max", { class: "small label vermilion" }),
      text(Math.min(Math.max(sx(now), box.left + 60), box.right - 60), Math.max(sy(here.smoothmax) - 22, box.top - 4), `slope = p = ${show(slope)}`, { class: "small strong", "text-anchor": "middle" }),
      finite && h("g", {
        class: editable ? "handle" : "",
        ...(editable ? draggable({
          label: `Logit of ${printable(items[k].name)}`, value: now, low: range[0], high: range[1], step: 0.1, page: 1,
          at: ([px]) => range[0] + ((px - box.left) / (box.right - box.left)) * (range[1] - range[0]),
          change: (v) => set({ x: state.x.map((old, i) => (i === k ? Math.round(v * 100) / 100 : old)) }, `x${k}`), end: () => store.endGesture(),
        }) : {}),
      }, rect(sx(now) - 14, box.top, 28, box.bottom - box.top, "hit"), circle(sx(now), sy(here.smoothmax), 8, "knob")));
  },

  numbers({ view, state }) {
    const end = signOf(state.T) < 0 ? view.min : view.max;
    return [
      ["smoothmax", "T log Σ exp(x / T)", view.smoothmax],
      ["end", state.T < 0 ? "min" : "max", end],
      ["bound", `${state.T < 0 ? "min" : "max"} + T log n`, state.T === 0 ? end : end + state.T * Math.log(view.present)],
      ["logsumexp", "log Σ exp(x / T)", view.logsumexp],
    ];
  },

  python: ({ row, state }) => [
    ...row.code,
    `T = ${pythonTemperature(state.T)}`,
    "logsumexp = hm.logsumexp(x, temperature=T)",
    "smoothmax = hm.smoothmax(x, temperature=T)",
    "gradient = hm.softmax(x, temperature=T)",
  ],
};
