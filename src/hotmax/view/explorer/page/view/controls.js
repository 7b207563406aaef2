// Controls: each has a label, works by keyboard, and says its value.

import { baseOf, temperatureOfBase } from "../math/softmax.js";
import { HALF, parseNumber, plain, show, stepOf, temperatureAt } from "../math/temperature.js";
import { h } from "./dom.js";

const MARKS = [[0, "0"], [100, "0.1"], [200, "1"], [300, "10"], [400, "∞"], [500, "−10"], [600, "−1"], [700, "−0.1"]];

export function button(text, onclick, props = {}) {
  return h("button", { type: "button", onclick, ...props }, text);
}

/** A text field for a number; what is no number is marked and changes nothing. */
export function numberField(label, value, change, { hidden = false, check = () => true, props = {} } = {}) {
  const read = (event) => {
    const found = parseNumber(event.target.value);
    const fine = found !== null && check(found);
    event.target.setAttribute("aria-invalid", fine ? "false" : "true");
    if (fine) change(found);
  };
  const leave = (event) => {
    event.target.setAttribute("aria-invalid", "false");
    event.target.value = plain(value);
  };
  const input = h("input", {
    type: "text", inputmode: "text", autocomplete: "off", spellcheck: "false", value: plain(value),
    "aria-label": hidden ? label : null, oninput: read, onblur: leave, ...props,
  });
  return hidden ? input : h("label", { class: "field" }, h("span", {}, label), input);
}

export function slider({ label, value, low, high, step, change, end, text = show, id }) {
  return h("div", { class: "slider" },
    h("label", { for: id }, label, " ", h("output", {}, text(value))),
    h("input", {
      type: "range", id, min: low, max: high, step, value, "aria-valuetext": text(value),
      oninput: (event) => change(Number(event.target.value)), onchange: end,
    }));
}

/** The temperature: 0, logarithmic, infinity, and negative beyond it; or typed, or by its base. */
export function temperatureSlider(context, { key = "T", negative = true, base = false, label = "Temperature T" } = {}) {
  const { state, set, store } = context;
  const T = state[key];
  const change = (value) => set({ [key]: value }, key);
  const last = negative ? 2 * HALF : HALF;
  const marks = MARKS.filter(([at]) => at <= last);
  return h("div", { class: "slider temperature" },
    h("label", { for: `slider-${key}` }, label, " ", h("output", {}, show(T))),
    h("input", {
      type: "range", id: `slider-${key}`, min: 0, max: last, step: 1, value: Math.round(stepOf(T)), list: null,
      "aria-valuetext": `temperature ${show(T)}`,
      oninput: (event) => change(temperatureAt(Number(event.target.value))), onchange: () => store.endGesture(),
    }),
    h("div", { class: "marks", "aria-hidden": "true" },
      marks.map(([at, text]) => h("span", { style: { left: `${(100 * at) / last}%` } }, text))),
    h("div", { class: "fields" },
      numberField("T =", T, change, { check: (v) => negative || v >= 0, props: { id: `field-${key}` } }),
      base && numberField("base b = exp(1/T) =", baseOf(T), (b) => change(temperatureOfBase(b)), { check: (b) => b >= 0, props: { id: "field-base" } })));
}

export function select(label, value, options, change, id) {
  return h("label", { class: "field" }, h("span", {}, label),
    h("select", { id, value, onchange: (event) => change(event.target.value) },
      options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text))));
}

export function checkbox(label, checked, change, props = {}) {
  return h("label", { class: "check" },
    h("input", { type: "checkbox", checked, onchange: (event) => change(event.target.checked), ...props }), h("span", {}, label));
}
