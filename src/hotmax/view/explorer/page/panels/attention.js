// 9: attention scores grow with the number of features; the scale keeps softmax soft.

import { FEATURES, KEYS, scores, weights } from "../math/attention.js";
import { plain, show } from "../math/temperature.js";
import { button, slider } from "../view/controls.js";
import { axes, circle, line, path, rect, scale, svg, text } from "../view/chart.js";
import { h } from "../view/dom.js";

const PAIR = [["unscaled", "q·k, not scaled", "vermilion"], ["scaled", "q·k / √d", "blue"]];

function found(state) {
  const list = scores(state.aseed);
  return { unscaled: weights(list.get(state.d), 1), scaled: weights(list.get(state.d), state.d ** -0.5) };
}

export const attention = {
  title: "Attention: why scores are scaled",
  short: "Attention",
  formula: "weights = softmax(q kᵀ / √d),   var(q · k) = d for normal q and k",
  notice: "Raise d: without the scale the scores spread like √d, one key takes all the weight (entropy → 0) and the gradient p (1 − p) dies. Divided by √d nothing changes with d.",
  own: true,
  presets: [
    ["d = 4", { d: 4 }],
    ["d = 64", { d: 64 }],
    ["d = 1024", { d: 1024 }],
  ],

  controls: ({ state, set, store }) => [
    slider({ id: "features", label: "Features d =", value: Math.log2(state.d), low: 0, high: FEATURES.length - 1, step: 1, text: (v) => String(2 ** v), change: (v) => set({ d: 2 ** v }, "d"), end: () => store.endGesture() }),
    button("Other queries and keys", () => set({ aseed: (state.aseed + 1) % 10000 }), { id: "other-seed" }),
    h("p", { class: "quiet" }, `One query, ${KEYS} keys, all features standard normal (seed ${state.aseed}).`),
  ],

  figure({ state, width }) {
    const now = found(state);
    const list = scores(state.aseed);
    const wide = width > 640;
    const size = wide ? (width - 100) / 2 : width - 46;
    const bars = PAIR.map(([id, title, color], m) => {
      const left = 40 + (wide ? m * (size + 56) : 0);
      const top = 40 + (wide ? 0 : m * 206);
      const y = scale([0, 1], [top + 130, top]);
      const step = (size - 10) / KEYS;
      return h("g", {},
        text(left, top - 22, title, { class: `name strong label ${color}` }),
        text(left + size - 12, top - 22, `largest ${show(now[id].largest, 3)}`, { class: "small", "text-anchor": "end" }),
        [0, 0.5, 1].map((v) => [line(left, y(v), left + size - 10, y(v), v ? "grid" : "axis"), text(left - 6, y(v) + 4, show(v), { class: "tick", "text-anchor": "end" })]),
        Array.from(now[id].p, (p, k) => rect(left + step * k, y(p), step - 1, y(0) - y(p), `bar ${color}`, { "data-method": id, "data-key": k, "data-value": plain(p) })),
        text(left, top + 148, `weights of ${KEYS} keys`, { class: "small" }));
    });
    const top = (wide ? 0 : 206) + 236;
    const box = (m) => ({ left: 40 + (wide ? m * (size + 56) : 0), top: top + (wide ? 0 : m * 240), right: 40 + (wide ? m * (size + 56) : 0) + size - 12, bottom: top + (wide ? 0 : m * 240) + 150 });
    const charts = [["entropy", "entropy, nats", Math.log(KEYS)], ["slope", "mean of p (1 − p)", 1 / KEYS]].map(([key, title, high], m) => {
      const b = box(m);
      const x = scale([0, FEATURES.length - 1], [b.left, b.right]);
      const y = scale([0, high * 1.05], [b.bottom, b.top]);
      const curve = (scaled) => FEATURES.map((d, i) => [x(i), y(weights(list.get(d), scaled ? d ** -0.5 : 1)[key])]);
      const at = Math.log2(state.d);
      return h("g", {},
        axes({ ...b, x, y, xTicks: FEATURES.map((d, i) => [i, String(d)]).filter((_, i) => i % 2 === 0), yTicks: [0, high / 2, high], xName: "features d", yName: title, format: (v) => show(v, 2) }),
        line(x(at), b.top, x(at), b.bottom, "cursor-line"),
        path(curve(false), 1), path(curve(true), 0),
        circle(x(at), y(now.unscaled[key]), 5, "dot vermilion"), circle(x(at), y(now.scaled[key]), 5, "dot blue"));
    });
    return svg(width, box(1).bottom + 46, "Attention weights with and without the scale", `d = ${state.d}`, bars, charts);
  },

  numbers({ state }) {
    const now = found(state);
    return [
      ["unscaled", "entropy, not scaled", now.unscaled.entropy],
      ["scaled", "entropy, scaled", now.scaled.entropy],
      ["slope-unscaled", "mean p (1 − p), not scaled", now.unscaled.slope],
      ["slope-scaled", "mean p (1 − p), scaled", now.scaled.slope],
    ];
  },

  python: ({ state }) => [
    "",
    "def hashed(i):  # integers to numbers in (0, 1)",
    "    h = np.asarray(i, np.uint32)",
    "    h = (h ^ (h >> 16)) * np.uint32(0x85EBCA6B)",
    "    h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)",
    "    return ((h ^ (h >> 16)) + 0.5) / 2**32",
    "",
    "def normal(i):  # integers to normal numbers, by Box and Muller",
    "    return np.sqrt(-2 * np.log(hashed(2 * i + 1))) * np.cos(2 * np.pi * hashed(2 * i + 2))",
    "",
    `both = normal(${state.aseed * (KEYS + 1) * 1024} + np.arange(${KEYS + 1} * 1024)).reshape(${KEYS + 1}, 1024)[:, :${state.d}]`,
    "q, k = both[:1], both[1:]",
    "unscaled = hm.attention_weights(q, k, scale=1.0)",
    "scaled = hm.attention_weights(q, k)",
    "entropies = [-(w * np.log(w, where=w > 0, out=np.zeros_like(w))).sum() for w in (unscaled, scaled)]",
  ],
};
