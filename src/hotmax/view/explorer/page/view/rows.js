// The row that the panels look at: typed by the user, a digit, or a row of the user's file.

import { distribution, largest, smallest } from "../math/softmax.js";
import { plain } from "../math/temperature.js";

export const SHOWN = 200; // classes; beyond them the largest, and the mass of the rest

/** Indices of the classes to show: all in order, or the SHOWN largest, ties by index. */
export function shownOf(keys) {
  const all = Array.from(keys, (_, i) => i);
  if (all.length <= SHOWN) return all;
  return all.sort((a, b) => keys[b] - keys[a] || a - b).slice(0, SHOWN);
}

/** A row whose logits are all here. */
function local(x, name, label, code) {
  return { x, n: x.length, name, label, code, whole: true };
}

const ofDigits = new Map(); // rows as lists: what a panel computes is kept for as long as its list

function digitsRow(digits, row) {
  if (!ofDigits.has(row)) {
    const start = row * digits.classes;
    ofDigits.set(row, Array.from(digits.logits.subarray(start, start + digits.classes)));
  }
  const code = ["from hotmax.view.explorer.digits import digits", "", `x = digits()[0][${row}]`];
  return { ...local(ofDigits.get(row), String, digits.labels[row], code), row, rows: digits.rows };
}

/** The current row, or null while it is on its way. */
export function currentRow(state, digits, server) {
  if (state.source === "digits") return digitsRow(digits, Math.min(state.row, digits.rows - 1));
  if (state.source === "file") {
    const { about } = server;
    if (!about?.rows) return null;
    const row = Math.min(state.row, about.rows - 1);
    const answer = server.ask("row", "row", { row, temperature: plain(state.T) });
    if (!answer || (answer.n <= SHOWN && answer.row !== row)) return null;
    const code = [`x = hm.io.read(${JSON.stringify(about.source)}).logits[${row}]`];
    const names = new Map(answer.index.map((c, j) => [c, answer.names[j]]));
    const name = (c) => names.get(c) ?? String(c);
    const found = { name, label: answer.label, code, row, rows: about.rows, answer };
    if (answer.n > SHOWN) return { ...found, x: answer.x, n: answer.n, index: answer.index, whole: false };
    return { ...local(answer.x, name, answer.label, code), ...found, x: answer.x, n: answer.n, whole: true };
  }
  const name = (i) => state.names[i] || String(i);
  return local(state.x, name, null, [`x = ${pythonList(state.x)}`]);
}

/** Python for a panel that takes the classes shown of a long row for all there are. */
export function largestOnly(row, { T }) {
  return row.whole ? [] : [`x = np.sort(x)${T < 0 ? "" : "[::-1]"}[:${SHOWN}]`];
}

/** Numbers as a list in Python; a long one ends in zeros that are not written out. */
export function pythonList(x) {
  const text = (list) => `[${list.map((v) => (Number.isFinite(v) ? plain(v) : `float("${plain(v)}")`)).join(", ")}]`;
  let end = x.length;
  while (end > 1 && x[end - 1] === x[end - 2]) end--;
  return x.length - end > 20 ? `${text(x.slice(0, end - 1))} + ${text([x[end]])} * ${x.length - end + 1}` : text(x);
}

/**
 * A row at a temperature: the classes shown with logit, p and log p, the rest, and its summaries.
 * Rows that are whole are computed here, others by the server.
 */
export function viewOf(row, T) {
  if (!row.whole) {
    const { answer } = row;
    const items = answer.index.map((c, j) => ({ i: c, name: row.name(c), x: answer.x[j], p: answer.p[j], logp: answer.logp[j] }));
    const rest = { count: answer.n - items.length, mass: answer.rest };
    const { entropy, logsumexp, smoothmax, max, min, present } = answer;
    return { items, rest, entropy, logsumexp, smoothmax, max, min, present, n: answer.n };
  }
  const found = distribution(row.x, T);
  const shown = shownOf(found.p);
  const items = shown.map((i) => ({ i, name: row.name(i), x: row.x[i], p: found.p[i], logp: found.logp[i] }));
  let mass = 0;
  if (shown.length < row.n) {
    const inside = new Set(shown);
    found.p.forEach((p, i) => (mass += inside.has(i) ? 0 : p));
  }
  return {
    items, rest: { count: row.n - shown.length, mass }, entropy: found.entropy, logsumexp: found.logsumexp,
    smoothmax: found.smoothmax, max: largest(row.x), min: smallest(row.x), present: found.present, n: row.n, p: found.p,
  };
}
