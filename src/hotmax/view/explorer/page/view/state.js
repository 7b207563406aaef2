// What the page shows, and how it is written into the address.

import { parseNumber, plain } from "../math/temperature.js";
import { FEATURES } from "../math/attention.js";
import { ORDERS, STEPS } from "../math/filters.js";

export const MOST_IN_ADDRESS = 2000; // numbers; longer rows are not part of a link
const MOST_NAME = 200;

// Kinds of values: text to value (undefined if it is none), and back.
const number = (low, high) => ({
  read: (text) => {
    const value = parseNumber(text);
    return value !== null && value >= low && value <= high ? value : undefined;
  },
  write: plain,
});
const integer = (low, high) => ({
  read: (text) => (/^\d{1,16}$/.test(text) && Number(text) >= low && Number(text) <= high ? Number(text) : undefined),
  write: String,
});
const choice = (...values) => ({ read: (text) => (values.includes(text) ? text : undefined), write: String });
const flag = { read: (text) => (text === "1" ? true : text === "0" ? false : undefined), write: (v) => (v ? "1" : "0") };
const numbers = {
  read: (text) => {
    const values = text.split(",").map(parseNumber);
    return values.length && values.every((v) => v !== null) ? values : undefined;
  },
  write: (values) => values.map(plain).join(","),
};
const indices = {
  read: (text) => (text === "" ? [] : /^\d+(,\d+)*$/.test(text) ? text.split(",").map(Number) : undefined),
  write: (values) => values.join(","),
};
const names = {
  read: (text) => (text === "" ? [] : text.split(",").map((name) => decodeURIComponent(name).slice(0, MOST_NAME))),
  write: (values) => values.map((name) => encodeURIComponent(name)).join(","),
};
const optional = (kind) => ({
  read: (text) => (text === "" ? null : kind.read(text)),
  write: (value) => (value === null ? "" : kind.write(value)),
});

export const PANELS = [
  "logits", "temperature", "order", "numbers", "logsumexp", "jacobian", "loss", "sampling", "attention", "calibration",
];

const power = {
  read: (text) => (FEATURES.includes(Number(text)) ? Number(text) : undefined),
  write: String,
};
const every = number(-Infinity, Infinity);

/** Each part of the state: what it starts with, and its kind. */
export const PARTS = {
  panel: [PANELS[0], choice(...PANELS)],
  source: ["own", choice("own", "digits", "file")],
  row: [0, integer(0, 2 ** 53)],
  x: [[2, 1, 0.1, -1], numbers],
  names: [["cat", "dog", "fox", "owl"], names],
  T: [1, every],
  shift: [2, number(-1e6, 1e6)],
  scale: [1, number(-100, 100)],
  log: [false, flag],
  k: [0, integer(0, 2 ** 31)],
  smoothing: [0, number(0, 0.99)],
  order: ["hf", choice(...Object.keys(ORDERS))],
  ...Object.fromEntries(Object.entries(STEPS).map(([name, { high, step }]) => [
    name, [null, optional(step === 1 ? integer(1, 1e9) : number(1e-9, high))],
  ])),
  repetition: [1, number(0.01, 100)],
  frequency: [0, number(-100, 100)],
  presence: [0, number(-100, 100)],
  tokens: [[], indices],
  seed: [0, integer(0, 2 ** 53 - 1)],
  draws: [0, integer(0, 1e6)],
  d: [64, power],
  aseed: [0, integer(0, 9999)],
  calT: [1, number(0.01, 100)],
};
export function initial() {
  return Object.fromEntries(Object.entries(PARTS).map(([name, [start]]) => [name, start]));
}

/** The state that an address holds, and the names of what could not be read in it. */
export function fromAddress(hash) {
  const state = initial();
  const wrong = [];
  for (const part of hash.replace(/^#/, "").split("&").filter(Boolean)) {
    const [name, value = ""] = part.split(/=(.*)/s);
    let found;
    try {
      if (Object.hasOwn(PARTS, name)) found = PARTS[name][1].read(name === "names" ? value : decodeURIComponent(value));
    } catch (error) {
      if (!(error instanceof URIError)) throw error;
    }
    if (found === undefined) wrong.push(name);
    else state[name] = found;
  }
  if (state.names.length && state.names.length !== state.x.length) state.names = [];
  return { state, wrong };
}

/** The address of a state: what differs from the start. */
export function toAddress(state) {
  const start = initial();
  const own = state.x.length <= MOST_IN_ADDRESS;
  const parts = [];
  for (const [name, [, kind]] of Object.entries(PARTS)) {
    if ((name === "x" || name === "names") && (!own || state.source !== "own")) continue;
    const text = kind.write(state[name]);
    if (text !== kind.write(start[name])) {
      parts.push(`${name}=${name === "names" ? text : encodeURIComponent(text).replace(/%2C/g, ",")}`);
    }
  }
  return parts.length ? `#${parts.join("&")}` : "#";
}
