// 1: logits as bars to drag, and the probabilities that they become.

import { plain, show } from "../math/temperature.js";
import { button, numberField, temperatureSlider } from "../view/controls.js";
import { circle, draggable, fitted, line, nameWidth, rect, scale, svg, text, ticks } from "../view/chart.js";
import { h, printable } from "../view/dom.js";
import { parseRow } from "../view/source.js";

const ROW = 30; // pixels for a class
const SMALLEST_RANGE = 5;
const MOST_EDITED = 50; // classes with fields to type in

let kept = { answer: null };

export const logits = {
  title: "Logits to probabilities",
  short: "Logits",
  formula: "p_i = exp(x_i / T) / Σ_j exp(x_j / T) = b^{x_i} / Σ_j b^{x_j},   b = exp(1 / T)",
  notice: "Drag a bar. Only differences between logits matter, and the temperature decides how much: at 0 the winner takes all, at ∞ all share alike, below 0 the smallest wins.",
  presets: [
    ["Three classes", { source: "own", x: [1, 2, 3], names: [], T: 1 }],
    ["A tie at T = 0", { source: "own", x: [3, 1, 3, 0], names: [], T: 0 }],
    ["Softmin, T = −1", { source: "own", x: [1, 2, 3], names: [], T: -1 }],
    ["A class that is not there", { source: "own", x: [2, 1, -Infinity, 0], names: [], T: 1 }],
  ],

  controls: (context) => [temperatureSlider(context, { base: true }), editor(context)],

  figure(context) {
    const { view, width, state, set, store, range, row } = context;
    // Of a long row a new picture comes with a new answer of the server, not before.
    if (!row.whole && kept.answer === row.answer && kept.width === width) return kept.picture;
    const { items, rest } = view;
    const names = nameWidth(items.map((item) => item.name), width / 4);
    const middle = names + (width - names - 56) * 0.5;
    const x = scale(range, [names + 6, middle - (width < 500 ? 16 : 34)]);
    const p = scale([0, 1], [middle + 6, width - 58]);
    const top = 40;
    const own = state.source === "own" && view.n <= MOST_EDITED * 4;
    const height = top + ROW * (items.length + (rest.count ? 1 : 0)) + 8;
    const picture = svg(width, height, "Logits and probabilities", "Bars of logits on the left, of probabilities on the right",
      h("g", { "aria-hidden": "true" },
        text(names + 6, 12, "logit x", { class: "name" }), text(middle + 6, 12, "probability p", { class: "name" }),
        ticks(...range, width < 500 ? 2 : 5).map((v) => [line(x(v), 34, x(v), height, v === 0 ? "axis" : "grid"), text(x(v), 30, show(v), { class: "tick small", "text-anchor": "middle" })]),
        [0, 0.5, 1].map((v) => [line(p(v), 34, p(v), height, v ? "grid" : "axis"), text(p(v), 30, show(v), { class: "tick small", "text-anchor": "middle" })])),
      items.map((item, j) => {
        const y = top + ROW * j;
        const at = item.x === Infinity ? range[1] : item.x === -Infinity ? range[0] : Math.min(Math.max(item.x, range[0]), range[1]);
        const [from, to] = [x(0), x(at)].sort((a, b) => a - b);
        const change = (value) => set({ x: state.x.map((v, i) => (i === item.i ? Math.round(value * 100) / 100 : v)), draws: 0 }, `x${item.i}`);
        const handle = own ? draggable({
          label: `Logit of ${printable(item.name)}`, value: item.x, valueText: `${show(item.x)}, probability ${show(item.p)}`, low: range[0], high: range[1],
          step: 0.1, page: 1, at: ([px]) => range[0] + ((px - x(range[0])) / (x(range[1]) - x(range[0]))) * (range[1] - range[0]),
          change, end: () => store.endGesture(),
        }) : {};
        return h("g", { class: "class" },
          text(names - 2, y + 19, fitted(item.name, names), { "text-anchor": "end" }),
          h("g", { class: own ? "handle" : "", ...handle },
            rect(names + 2, y, middle - names - 12, ROW, "hit"),
            rect(from, y + 5, to - from, ROW - 12, item.x === -Infinity ? "absent" : "bar sky"),
            own && circle(x(at), y + ROW / 2 - 1, 7, "knob")),
          text(item.x < 0 ? x(0) + 11 : x(0) - 11, y + 18, show(item.x, 3), { class: "small", "text-anchor": item.x < 0 ? "start" : "end" }),
          rect(p(0), y + 5, p(item.p || 0) - p(0), ROW - 12, "bar blue"),
          text(width - 52, y + 19, Number.isNaN(item.p) ? "nan" : item.p.toFixed(4), { class: "value", "data-p": item.i, "data-value": plain(item.p) }));
      }),
      rest.count > 0 && h("g", {},
        text(names - 2, top + ROW * items.length + 19, "rest", { "text-anchor": "end" }),
        text(names + 8, top + ROW * items.length + 19, `${rest.count.toLocaleString("en")} more classes`, { class: "small" }),
        rect(p(0), top + ROW * items.length + 5, p(rest.mass) - p(0), ROW - 12, "bar muted"),
        text(width - 52, top + ROW * items.length + 19, rest.mass.toFixed(4), { class: "value" })));
    kept = { answer: row.answer, width, picture };
    return picture;
  },

  numbers: ({ view }) => [
    ["entropy", "entropy, nats", view.entropy],
    ["effective", "effective classes, exp(entropy)", Math.exp(view.entropy)],
    ["largest", "largest probability", view.items.reduce((a, { p }) => Math.max(a, p), 0)],
    ["classes", "classes", view.n],
  ],

  python: ({ row, state }) => [
    ...row.code,
    `p = hm.softmax(x, temperature=${temperature(state.T)})`,
    `entropy = hm.entropy(x, temperature=${temperature(state.T)})`,
    "effective = math.exp(entropy)",
  ],
};

/** A temperature as Python has it. */
export function temperature(T) {
  return Number.isFinite(T) ? plain(T) : `float("${plain(T)}")`;
}

function editor({ state, set, row }) {
  if (state.source !== "own") {
    if (!row) return null;
    const take = row.x.map((v, i) => [v, row.name(row.index ? row.index[i] : i)]).sort((a, b) => b[0] - a[0]).slice(0, 20);
    return button(row.n > 20 ? "Play with its 20 largest" : "Play with these numbers", () => set({ source: "own", ...(row.n > 20 ? { x: take.map(([v]) => v), names: take.map(([, name]) => name) } : { x: Array.from(row.x), names: row.x.map((_, i) => row.name(i)) }) }));
  }
  const { x } = state;
  const names = x.map((_, i) => state.names[i] ?? "");
  const rename = (i, name) => set({ names: names.map((old, j) => (j === i ? name : old)) }, `name${i}`);
  const fields = x.length <= MOST_EDITED && x.map((v, i) => h("div", { class: "edit" },
    h("input", { type: "text", "aria-label": `Name of class ${i}`, value: names[i], placeholder: String(i), maxlength: 200, oninput: (event) => rename(i, event.target.value) }),
    numberField(`Logit of class ${i}`, v, (value) => set({ x: x.map((old, j) => (j === i ? value : old)), draws: 0 }, `x${i}`), { hidden: true }),
    button("×", () => set({ x: x.filter((_, j) => j !== i), names: names.filter((_, j) => j !== i), k: 0, tokens: [], draws: 0 }), { "aria-label": `Remove class ${i}`, disabled: x.length < 2, class: "remove" })));
  return h("details", { class: "editor", open: true },
    h("summary", {}, "Classes: type, name, add, remove"),
    fields,
    button("Add a class", () => set({ x: [...x, 0], names: [...names, ""], draws: 0 }), { id: "add-class" }),
    h("label", { class: "field wide" }, h("span", {}, "Paste numbers, one row of logits"),
      h("textarea", {
        id: "paste", rows: 2, spellcheck: "false", value: "",
        oninput: (event) => {
          const { values, wrong } = parseRow(event.target.value);
          const fine = values.length > 0 && wrong === undefined;
          event.target.setAttribute("aria-invalid", fine ? "false" : "true");
          if (fine) set({ x: values, names: [], k: 0, tokens: [], draws: 0 }, "paste");
        },
      })));
}

/** The range of the logits' axis: round, and at least -5 .. 5 on the side that is used. */
export function rangeOf(x) {
  const finite = Array.from(x).filter(Number.isFinite);
  const high = finite.reduce((a, b) => Math.max(a, b), 0);
  const low = finite.reduce((a, b) => Math.min(a, b), 0);
  const size = Math.max(high, -low, SMALLEST_RANGE) * 1.2;
  const step = 10 ** Math.floor(Math.log10(size));
  const end = Math.ceil(size / step) * step;
  return [low < -0.5 * high || low < -SMALLEST_RANGE / 2 ? -end : -end / 2, high < -0.5 * low && high < SMALLEST_RANGE / 2 ? end / 2 : end];
}
