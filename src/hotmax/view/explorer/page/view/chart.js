// Pictures: scales, axes, bars and lines in SVG, in the colours of the page.

import { show } from "../math/temperature.js";
import { h, printable } from "./dom.js";

export const COLORS = ["blue", "vermilion", "green", "pink", "amber", "sky"];
const DASHES = [null, "7 3", "2 2", "8 3 2 3"];

export function scale([a, b], [from, to]) {
  return (v) => from + ((v - a) / (b - a || 1)) * (to - from);
}

export function clamp(v, low, high) {
  return Math.min(Math.max(v, low), high);
}

/** Five or so round numbers from low to high. */
export function ticks(low, high, count = 5) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.max(Math.floor(high / step + 1e-9) - first + 1, 0) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

export function svg(width, height, title, text, ...children) {
  return h("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `${title}. ${text}` },
    h("title", {}, title), children);
}

/** An element at some place; none where the place is not a number, as for a p of nan. */
function placed(tag, place, props, ...children) {
  const values = Object.entries(place);
  if (!values.every(([, v]) => Number.isFinite(v))) return null;
  return h(tag, { ...Object.fromEntries(values.map(([name, v]) => [name, round(v)])), ...props }, ...children);
}

export function text(x, y, content, props = {}) {
  return placed("text", { x, y }, props, content);
}

export function line(x1, y1, x2, y2, className = "axis") {
  return placed("line", { x1, y1, x2, y2 }, { class: className });
}

export function rect(x, y, width, height, className, props = {}) {
  return placed("rect", { x, y, width: Math.max(width, 0), height: Math.max(height, 0) }, { class: className, ...props });
}

export function circle(cx, cy, r, className) {
  return placed("circle", { cx, cy, r }, { class: className });
}

export function round(v) {
  return Math.round(v * 100) / 100;
}

/** A line through points; it is broken where one is not finite. */
export function path(points, index, className = "") {
  let broken = true;
  const d = points.map(([x, y]) => {
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      broken = true;
      return "";
    }
    const command = `${broken ? "M" : "L"}${round(x)} ${round(y)}`;
    broken = false;
    return command;
  }).join("");
  const dash = DASHES[Math.floor(index / COLORS.length) % DASHES.length];
  return h("path", { d, class: `line ${COLORS[index % COLORS.length]} ${className}`, "stroke-dasharray": dash });
}

/** A frame with ticks and names for both axes; `x` and `y` are scales of their ticks. */
export function axes({ left, top, right, bottom, x, y, xTicks, yTicks, xName, yName, format = show }) {
  return h("g", { class: "axes", "aria-hidden": "true" },
    yTicks.map((v) => [
      line(left, y(v), right, y(v), "grid"),
      text(left - 6, y(v) + 4, format(v), { class: "tick", "text-anchor": "end" }),
    ]),
    xTicks.map((tick) => {
      const [v, label] = Array.isArray(tick) ? tick : [tick, show(tick)];
      return [line(x(v), bottom, x(v), bottom + 4), text(x(v), bottom + 17, label, { class: "tick", "text-anchor": "middle" })];
    }),
    line(left, bottom, right, bottom),
    xName && text((left + right) / 2, bottom + 36, xName, { class: "name", "text-anchor": "middle" }),
    yName && text(left, top - 8, yName, { class: "name" }));
}

/** Names that fit: some 7 pixels a letter. */
export function fitted(name, pixels) {
  return printable(name, Math.max(Math.floor(pixels / 7.2), 2));
}

/** How wide the longest of some names is, within limits. */
export function nameWidth(names, most) {
  const longest = names.reduce((a, name) => Math.max(a, Math.min(String(name).length, 40)), 1);
  return clamp(longest * 7.4 + 10, 24, most);
}

/** Where a pointer is, in the units of the drawing that it moves over. */
export function pointerPlace(event) {
  const drawing = event.currentTarget.ownerSVGElement ?? event.currentTarget;
  const box = drawing.getBoundingClientRect();
  const [, , width, height] = drawing.getAttribute("viewBox").split(" ").map(Number);
  return [((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height];
}

/** Handlers that make an element draggable and movable by keys: a slider. */
export function draggable({ label, value, valueText, low, high, step, page, at, change, end }) {
  const move = (event) => change(clamp(at(pointerPlace(event)), low, high));
  const keys = {
    ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: page, PageDown: -page,
  };
  return {
    role: "slider", tabindex: 0, "aria-label": label, "aria-valuenow": Number.isFinite(value) ? value : value > 0 ? high : low,
    "aria-valuetext": valueText ?? show(value), "aria-valuemin": low, "aria-valuemax": high,
    onpointerdown: (event) => {
      if (event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      event.currentTarget.focus({ preventScroll: true });
      event.preventDefault();
      move(event);
    },
    onpointermove: (event) => event.currentTarget.hasPointerCapture(event.pointerId) && move(event),
    onpointerup: end,
    onpointercancel: end,
    onkeydown: (event) => {
      const from = Number.isFinite(value) ? value : value > 0 ? high : low;
      const next = event.key === "Home" ? low : event.key === "End" ? high : keys[event.key] === undefined ? null : from + keys[event.key];
      if (next === null) return;
      event.preventDefault();
      change(clamp(Number(next.toPrecision(12)), low, high));
      end();
    },
  };
}
