// 8: draws beside their probabilities, and what each filter cut.

import { STEPS, filter, penalize } from "../math/filters.js";
import { draw } from "../math/random.js";
import { plain, show } from "../math/temperature.js";
import { button, checkbox, numberField, select, temperatureSlider } from "../view/controls.js";
import { fitted, line, nameWidth, rect, scale, svg, text } from "../view/chart.js";
import { h, printable } from "../view/dom.js";
import { temperature as pythonTemperature } from "./logits.js";

const MOST = 20; // classes with bars
const MOST_DRAWS = 100_000;
const ROW = 30;
const LIBRARIES = [["hf", "transformers"], ["vllm", "vLLM"], ["llama.cpp", "llama.cpp"]];
const PENALTIES = { repetition: 1, frequency: 0, presence: 0 };

let drawn = { p: null };
let filtered = { x: null };

/** Temperatures of a sampler are 0 and above. */
const samplerTemperature = (T) => Math.abs(T);

function chosenSteps(state) {
  return Object.fromEntries(Object.keys(STEPS).filter((name) => state[name] !== null).map((name) => [name, state[name]]));
}

function penalized(state) {
  return Object.keys(PENALTIES).some((name) => state[name] !== PENALTIES[name]);
}

/** How often each class came among the first `count` draws; only new ones are drawn. */
function counted(p, seed, count) {
  if (drawn.p !== p || drawn.seed !== seed || drawn.count > count) drawn = { p, seed, count: 0, counts: new Map() };
  for (const c of draw(p, seed, drawn.count, count - drawn.count)) drawn.counts.set(c, (drawn.counts.get(c) ?? 0) + 1);
  drawn.count = count;
  return drawn.counts;
}

/** The row after penalties and filters, computed once for the same settings. */
function filteredRow(row, state, T) {
  const steps = chosenSteps(state);
  const key = JSON.stringify([steps, state.order, plain(T), state.tokens, state.repetition, state.frequency, state.presence]);
  if (filtered.x !== row.x || filtered.key !== key) {
    const tokens = state.tokens.filter((token) => token < row.n);
    const x = penalized(state) ? penalize(row.x, tokens, state) : Array.from(row.x);
    filtered = { x: row.x, key, result: filter(x, steps, state.order, T) };
  }
  return filtered.result;
}

/** Probabilities after the steps, counts of draws, and the log of the steps. */
function found({ row, state, view, server }) {
  const T = samplerTemperature(state.T);
  if (!row.whole) {
    const answer = server.ask("sample", "sample", {
      row: row.row, temperature: plain(T), order: state.order, steps: JSON.stringify(chosenSteps(state)), seed: state.seed, draws: state.draws,
      tokens: state.tokens.join(","), penalties: JSON.stringify(Object.fromEntries(Object.keys(PENALTIES).map((name) => [name, state[name]]))),
    });
    if (!answer) return null;
    const after = new Map(answer.index.map((c, j) => [c, j]));
    return {
      log: answer.log, p: (i) => answer.p[after.get(i)] ?? 0, counts: (i) => answer.counts[after.get(i)] ?? 0, kept: (i) => answer.kept[after.get(i)] ?? false,
      cutBy: () => undefined, left: answer.left,
    };
  }
  if (Number.isNaN(view.entropy)) return { log: [], p: () => NaN, counts: () => 0, kept: () => false, cutBy: () => undefined, left: 0 };
  const result = filteredRow(row, state, T);
  const counts = counted(result.p, state.seed, state.draws);
  return {
    log: result.log, p: (i) => result.p[i], counts: (i) => counts.get(i) ?? 0, kept: (i) => result.kept[i] > -Infinity, cutBy: (i) => result.cutBy.get(i),
    left: result.kept.filter((v) => v > -Infinity).length, all: result.p,
  };
}

/** More draws: they fall in over half a second, or at once where motion is unwelcome. */
function drawMore({ state, set, store }, more) {
  const aim = Math.min(state.draws + more, MOST_DRAWS);
  if (more === 1 || matchMedia("(prefers-reduced-motion: reduce)").matches) {
    set({ draws: aim });
    return;
  }
  const start = performance.now();
  const from = state.draws;
  const gesture = `draws${start}`;
  const fall = (now) => {
    if (store.gesture !== gesture && now > start + 100) return; // something else was changed
    const share = Math.min((now - start) / 500, 1);
    set({ draws: Math.round(from + (aim - from) * Math.max(share, 0) ** 2) }, gesture);
    if (share < 1) requestAnimationFrame(fall);
    else store.endGesture();
  };
  fall(start);
}

export const sampling = {
  title: "Sampling and its filters",
  short: "Sampling",
  formula: "class ~ softmax(x / T), after filters;   standard error of a frequency √(p (1 − p) / N)",
  notice: "Outlined: the probability; filled: how often the class was drawn. Switch a filter on to see what it cuts (grey), and change the library: the same settings in another order keep other classes.",
  presets: [
    ["Top-p 0.8", { top_p: 0.8, top_k: null, min_p: null }],
    ["Order matters", { source: "own", x: [3, 2.4, 2, 1.2, 0.6, 0, -1], names: [], T: 2, top_p: 0.8, min_p: 0.15, top_k: null, order: "llama.cpp" }],
    ["Repetition penalty", { source: "own", x: [3, 2.4, 2, 1.2], names: [], repetition: 1.5, tokens: [0, 0, 1] }],
    ["No filters", { ...Object.fromEntries(Object.keys(STEPS).map((name) => [name, null])), ...PENALTIES, tokens: [] }],
  ],

  controls: (context) => {
    const { state, set, store } = context;
    return [
      h("div", { class: "buttons" },
        [1, 100, 1000, 10000].map((more) => button(`Draw ${more.toLocaleString("en")}`, () => drawMore(context, more), { disabled: state.draws >= MOST_DRAWS })),
        button("Clear", () => set({ draws: 0 }), { disabled: state.draws === 0 })),
      temperatureSlider(context, { negative: false }),
      select("Order of", state.order, LIBRARIES, (order) => set({ order, draws: 0 }), "order"),
      h("fieldset", {}, h("legend", {}, "Filters"),
        Object.entries(STEPS).map(([name, step]) => h("div", { class: "step" },
          checkbox(step.title, state[name] !== null, (on) => set({ [name]: on ? step.start : null }), { id: `step-${name}`, title: `Keep ${step.says}` }),
          state[name] === null ? h("span", { class: "quiet" }, `keep ${step.says}`) : [
            h("input", { type: "range", "aria-label": step.title, min: step.low, max: step.high > 50 ? Math.min(step.high, 50) : step.high, step: step.step, value: state[name], oninput: (event) => set({ [name]: Number(event.target.value) }, name), onchange: () => store.endGesture() }),
            numberField(step.title, state[name], (v) => set({ [name]: v }, name), { hidden: true, check: (v) => v >= (step.step === 1 ? 1 : 1e-9) && v <= (step.step === 1 ? 1e9 : step.high) && (step.step !== 1 || Number.isInteger(v)) }),
          ]))),
      h("details", { class: "penalties", open: penalized(state) }, h("summary", {}, "Penalties for tokens so far"),
        h("label", { class: "field wide" }, h("span", {}, "Classes so far, by number"),
          h("input", { type: "text", id: "tokens", value: state.tokens.join(", "), oninput: (event) => {
            const parts = event.target.value.split(/[\s,]+/).filter(Boolean);
            const fine = parts.every((part) => /^\d{1,9}$/.test(part));
            event.target.setAttribute("aria-invalid", fine ? "false" : "true");
            if (fine) set({ tokens: parts.map(Number) }, "tokens");
          } })),
        h("div", { class: "fields" }, Object.keys(PENALTIES).map((name) => numberField(`${name} =`, state[name], (v) => set({ [name]: v }, name), { check: (v) => (name === "repetition" ? v >= 0.01 && v <= 100 : Math.abs(v) <= 100), props: { id: `penalty-${name}` } })))),
      h("div", { class: "fields" }, numberField("seed =", state.seed, (seed) => set({ seed, draws: state.draws }), { check: (v) => Number.isInteger(v) && v >= 0 && v < 2 ** 53, props: { id: "seed" } })),
    ];
  },

  figure(context) {
    const { width, view, state } = context;
    const now = found(context);
    if (!now) return h("p", { class: "quiet" }, "Computing…");
    const items = view.n <= MOST ? view.items : [...view.items].sort((a, b) => b.p - a.p || a.i - b.i).slice(0, MOST);
    const names = nameWidth(items.map((item) => item.name), width / 5);
    const most = Math.max(...items.map((item) => Math.max(now.p(item.i), state.draws ? now.counts(item.i) / state.draws : 0) || 0), 0.05);
    const p = scale([0, Math.min(most * 1.05, 1)], [names + 8, width - 124]);
    const top = 34;
    const stepTop = top + ROW * items.length + 44;
    return svg(width, stepTop + 24 * (now.log.length + 1), "Draws beside probabilities", `${state.draws} draws`,
      text(names + 8, 14, state.draws ? `${state.draws.toLocaleString("en")} draws` : "no draws yet: press Draw", { class: "name strong" }),
      text(width - 116, 14, "p", { class: "name" }), text(width - 52, 14, "drawn", { class: "name" }),
      line(p(0), 24, p(0), stepTop - 40),
      items.map((item, j) => {
        const y = top + ROW * j;
        const kept = now.kept(item.i);
        const q = now.p(item.i) || 0;
        const share = state.draws ? now.counts(item.i) / state.draws : 0;
        const cut = now.cutBy(item.i);
        return h("g", { class: kept ? "" : "cut" },
          text(names, y + 18, fitted(item.name, names - 6), { "text-anchor": "end", class: kept ? "" : "struck" }),
          rect(p(0), y + 5, p(share) - p(0), ROW - 14, "bar sky"),
          rect(p(0), y + 3, p(q) - p(0), ROW - 10, "outline"),
          !kept && text(p(0) + 6, y + 18, cut ? `cut by ${STEPS[cut]?.title ?? "temperature 0"}` : item.x === -Infinity ? "not there" : "cut", { class: "small" }),
          text(width - 116, y + 18, q.toFixed(4), { class: "value", "data-p": item.i, "data-value": plain(q) }),
          text(width - 52, y + 18, state.draws ? share.toFixed(4) : "–", { class: "value", "data-count": item.i, "data-value": now.counts(item.i) }));
      }),
      view.n > MOST && text(names + 8, stepTop - 28, `and ${(view.n - MOST).toLocaleString("en")} more classes`, { class: "small" }),
      text(0, stepTop, "step", { class: "name strong" }), text(width * 0.42, stepTop, "classes kept", { class: "name strong" }), text(width * 0.72, stepTop, "mass cut", { class: "name strong" }),
      now.log.map((step, j) => h("g", { "data-step": step.name },
        text(0, stepTop + 22 + 24 * j, step.name === "temperature" ? `temperature ${show(step.number)}` : `${STEPS[step.name].title} ${show(step.number)}`, { class: "small" }),
        text(width * 0.42, stepTop + 22 + 24 * j, `${step.kept.toLocaleString("en")} of ${step.before.toLocaleString("en")}`, { class: "small", "data-kept": step.kept }),
        text(width * 0.72, stepTop + 22 + 24 * j, step.mass ? `${show(100 * step.mass, 3)} %` : "–", { class: "small" }))));
  },

  numbers(context) {
    const now = found(context);
    if (!now) return [];
    const { state } = context;
    const first = context.view.items.reduce((a, item) => (now.p(item.i) > now.p(a.i) ? item : a), context.view.items[0]);
    const q = now.p(first.i);
    return [
      ["left", "classes left", now.left],
      ["draws", "draws", state.draws],
      ["error", `standard error for ${printable(first.name, 12)}`, state.draws ? Math.sqrt((q * (1 - q)) / state.draws) : NaN],
    ];
  },

  python({ row, state }) {
    const T = pythonTemperature(samplerTemperature(state.T));
    const steps = Object.entries(chosenSteps(state)).map(([name, v]) => `, "${name}": ${plain(v)}`).join("");
    const penalties = penalized(state);
    const own = penalties ? Object.keys(PENALTIES).map((name) => `, "${name}": ${plain(state[name])}`).join("") : "";
    return [
      ...row.code,
      `sampler = hm.Sampler({"temperature": ${T}${steps}${own}}, order="${state.order}")`,
      `kept = sampler.truncate(x${penalties ? `, tokens=[${state.tokens.filter((t) => t < row.n).join(", ")}]` : ""})`,
      `p = hm.softmax(kept, temperature=${T})`,
      ...(state.draws ? [`draws = hm.sample(kept, temperature=${T}, size=${state.draws}, seed=${state.seed})`, "counts = np.bincount(draws, minlength=len(x))"] : []),
    ];
  },
};
