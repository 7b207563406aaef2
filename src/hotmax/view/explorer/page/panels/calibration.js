// 10: one temperature for a whole set of predictions.

import { assess, fit, survey } from "../math/calibration.js";
import { plain, show } from "../math/temperature.js";
import { button, checkbox, select, temperatureSlider } from "../view/controls.js";
import { axes, circle, line, path, rect, scale, svg, text } from "../view/chart.js";
import { h, printable } from "../view/dom.js";

const CURVE = 41;
let known = { set: null };
let all = false; // all rows of a large file, though a move then takes long

/** The set: the digits here, or the file by the server. Null while something is on its way. */
function found({ state, digits, server }) {
  if (state.source !== "file" || !server.about?.rows) {
    if (!known.set) {
      const set = survey(digits);
      const fitted = fit(set);
      const curve = temperatures(fitted.interval).map((T) => [T, assess(set, T).nll]);
      known = { set, fitted, curve, before: assess(set, 1) };
    }
    return { ...known, now: assess(known.set, state.calT), rows: digits.rows, used: digits.rows, title: "digits" };
  }
  if (!server.about.labelled) return { missing: true };
  const rows = all ? "all" : "some";
  const fitted = server.ask("fit", "fit", { rows });
  const now = server.ask("calibration", "calibration", { rows, temperature: plain(state.calT) });
  if (!fitted || !now) return null;
  return { fitted, curve: fitted.curve, before: fitted.before, now, rows: server.about.rows, used: now.rows, title: server.about.name };
}

function temperatures([low, high]) {
  const from = Math.min(low, 1) / 2.5;
  const to = Math.max(high, 1) * 2.5;
  return Array.from({ length: CURVE }, (_, i) => from * (to / from) ** (i / (CURVE - 1)));
}

export const calibration = {
  title: "Calibration: the temperature that fits",
  short: "Calibration",
  formula: "T̂ = argmin_T mean(−log softmax(x / T)_y),   ECE = Σ_b (n_b / n) |accuracy_b − confidence_b|",
  notice: "Bars below the diagonal: the classifier is surer than it is right. Raise T until the bars meet the diagonal; the fitted temperature (dashed, with its 95 % interval) is where the loss is least. Accuracy never changes.",
  own: true,
  presets: [
    ["As it came, T = 1", { calT: 1 }],
    ["Too hot, T = 10", { calT: 10 }],
    ["Too sure, T = 0.3", { calT: 0.3 }],
  ],

  controls: (context) => {
    const { state, set, server } = context;
    const set10 = found(context);
    const options = [["digits", "Digits classifier, 1597 rows"]];
    if (server.about?.rows) options.push(["file", `File: ${printable(server.about.name, 30)}`]);
    return [
      select("Set", state.source === "file" && server.about?.rows ? "file" : "digits", options, (source) => set({ source, row: 0 }), "set"),
      temperatureSlider(context, { key: "calT", negative: false, label: "Temperature of all rows" }),
      set10?.fitted && Number.isFinite(set10.fitted.temperature) && set10.fitted.temperature > 0 &&
        button(`Set T to the fitted ${show(set10.fitted.temperature)}`, () => set({ calT: Math.min(Math.max(set10.fitted.temperature, 0.01), 100) }), { id: "use-fitted" }),
      set10 && set10.rows > (set10.used ?? 0) && h("p", { class: "quiet" }, `From ${set10.used.toLocaleString("en")} evenly spaced rows of ${set10.rows.toLocaleString("en")}.`),
      state.source === "file" && server.about?.sampled && checkbox("All rows (each move takes longer)", all, (on) => {
        all = on;
        server.arrived();
      }, { id: "all-rows" }),
    ];
  },

  figure(context) {
    const { state, width } = context;
    const set = found(context);
    if (!set) return h("p", { class: "quiet" }, context.server.error ? "" : "Computing…");
    if (set.missing) return h("p", { class: "notice" }, "This file has no labels, so nothing says what is right. hotmax explore FILE --labels NAME reads them from another array or file.");
    const wide = width > 700;
    const size = wide ? (width - 30) / 2 : width;
    const box = { left: 44, top: 44, right: size - 10, bottom: 44 + Math.min(size - 60, 320) };
    const x = scale([0, 1], [box.left, box.right]);
    const y = scale([0, 1], [box.bottom, box.top]);
    const most = Math.max(...set.now.bins.map((bin) => bin.count));
    const left2 = wide ? size + 70 : 50;
    const top2 = wide ? 44 : box.bottom + 84;
    const second = { left: left2, top: top2, right: width - 12, bottom: top2 + 250 };
    const finite = set.curve.filter(([, nll]) => Number.isFinite(nll));
    const ends = [Math.log(finite[0][0]), Math.log(finite[finite.length - 1][0])];
    const lowest = Math.min(...finite.map(([, nll]) => nll));
    const highest = Math.max(...finite.map(([, nll]) => nll));
    const tx = scale(ends, [second.left, second.right]);
    const ty = scale([lowest - (highest - lowest) * 0.08, highest], [second.bottom, second.top]);
    const inside = (T) => Math.min(Math.max(Math.log(T), ends[0]), ends[1]);
    const decimals = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50].filter((t) => Math.log(t) >= ends[0] && Math.log(t) <= ends[1]);
    const [low, high] = set.fitted.interval;
    const best = set.fitted.temperature;
    return svg(width, (wide ? Math.max(box.bottom, second.bottom) : second.bottom) + 46, "Reliability and loss", `ECE ${show(100 * set.now.ece, 3)} percent at temperature ${show(state.calT)}`,
      text(0, 16, "how often it is right, by how sure it is", { class: "name strong" }),
      axes({ ...box, x, y, xTicks: [0, 0.25, 0.5, 0.75, 1], yTicks: [0, 0.25, 0.5, 0.75, 1], xName: "confidence", yName: "accuracy" }),
      set.now.bins.map((bin, b) => bin.count > 0 && h("g", { "data-bin": b, "data-count": bin.count, "data-accuracy": plain(bin.accuracy), "data-confidence": plain(bin.confidence) },
        rect(x(bin.low) + 1, y(bin.accuracy), x(bin.high) - x(bin.low) - 2, y(0) - y(bin.accuracy), "bar blue soft", { "fill-opacity": 0.3 + (0.7 * bin.count) / most }),
        line((x(bin.low) + x(bin.high)) / 2, y(bin.interval[0]), (x(bin.low) + x(bin.high)) / 2, y(bin.interval[1]), "whisker"),
        circle(x(bin.confidence), y(bin.accuracy), 3, "dot ink"))),
      line(x(0), y(0), x(1), y(1), "diagonal"),
      text(left2 - (wide ? 30 : 50), top2 - 28, "mean −log p of the label, over T", { class: "name strong" }),
      axes({ ...second, x: (t) => tx(Math.log(t)), y: ty, xTicks: decimals.map((t) => [t, show(t)]), yTicks: ticksBetween(lowest, highest), xName: "temperature T", format: (v) => show(v, 3) }),
      rect(tx(inside(low || 1e-9)), second.top, tx(inside(high)) - tx(inside(low || 1e-9)), second.bottom - second.top, "interval"),
      line(tx(inside(best || 1e-9)), second.top, tx(inside(best || 1e-9)), second.bottom, "limit"),
      text(tx(inside(best || 1e-9)) + 6, second.top + 14, `T̂ = ${show(best)}`, { class: "small strong" }),
      path(finite.map(([t, nll]) => [tx(Math.log(t)), ty(nll)]), 0),
      circle(tx(inside(state.calT)), ty(Math.min(set.now.nll, highest)), 7, "knob"));
  },

  numbers(context) {
    const set = found(context);
    if (!set || set.missing) return [];
    const { fitted, now } = set;
    return [
      ["ece", "ECE, 15 bins", now.ece, (v) => `${show(100 * v, 3)} %`],
      ["nll", "mean nll", now.nll],
      ["accuracy", "accuracy", now.accuracy, (v) => `${show(100 * v, 4)} %`],
      ["confidence", "mean confidence", now.confidence, (v) => `${show(100 * v, 4)} %`],
      ["fitted", `fitted T, 95 %: ${show(fitted.interval[0])} to ${show(fitted.interval[1])}`, fitted.temperature],
      ["fitted-nll", `nll there; ${show(set.before.nll)} at T = 1`, fitted.nll],
    ];
  },

  python(context) {
    const { state, server } = context;
    const file = state.source === "file" && server.about?.rows;
    const set = found(context);
    const every = file && set && set.used < set.rows ? `[::${server.about.step}]` : "";
    return [
      ...(file ? [`found = hm.io.read(${JSON.stringify(server.about.source)})`, `logits, labels = found.logits${every}, found.labels${every}`] : ["from hotmax.view.explorer.digits import digits", "", "logits, labels = digits()"]),
      `T = ${plain(state.calT)}`,
      "ece = hm.calibration.ece(logits, labels, temperature=T)",
      "nll = hm.calibration.nll(logits, labels, temperature=T)",
      "fit = hm.calibration.fit_temperature(logits, labels)",
    ];
  },
};

function ticksBetween(low, high) {
  return Array.from({ length: 5 }, (_, i) => low + ((high - low) * i) / 4);
}
