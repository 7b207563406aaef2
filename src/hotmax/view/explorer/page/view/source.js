// Where the row comes from: numbers that the user types, the digits, or a file.

import { parseNumber, plain } from "../math/temperature.js";
import { button, select } from "./controls.js";
import { h, printable } from "./dom.js";

const MOST_TYPED = 400; // numbers that a text field shows

/** Numbers in a pasted text: lines, commas, semicolons, tabs or brackets between them. */
export function parseRow(text) {
  const cells = text.replace(/[[\]()]/g, " ").split(/[\s,;]+/).filter(Boolean);
  const values = cells.map(parseNumber);
  const wrong = cells.find((_, i) => values[i] === null);
  return { values, wrong };
}

export function sourceControl(context) {
  const { state, set, server, digits } = context;
  const options = [["own", "My own numbers"], ["digits", "Digits classifier"]];
  if (server.about?.rows) options.push(["file", `File: ${printable(server.about.name, 30)}`]);
  const rows = state.source === "digits" ? digits.rows : server.about?.rows ?? 0;
  return h("div", { class: "source" },
    select("Logits from", state.source, options, (source) => set({ source, row: 0, k: 0, draws: 0, tokens: [] }), "source"),
    state.source === "own" ? typedRow(context) : rowStepper(context, rows),
    server.about && openFile(context));
}

function typedRow({ state, set }) {
  if (state.x.length > MOST_TYPED) return h("p", { class: "quiet" }, `${state.x.length} numbers of your own.`);
  return h("label", { class: "field wide" }, h("span", {}, "Logits"),
    h("input", {
      type: "text", id: "row-text", autocomplete: "off", spellcheck: "false", value: state.x.map(plain).join(", "),
      oninput: (event) => {
        const { values, wrong } = parseRow(event.target.value);
        const fine = values.length > 0 && wrong === undefined;
        event.target.setAttribute("aria-invalid", fine ? "false" : "true");
        if (fine) set({ x: values, names: values.length === state.names.length ? state.names : [], draws: 0, k: Math.min(state.k, values.length - 1) }, "x");
      },
    }));
}

function rowStepper({ state, set, row }, rows) {
  const go = (to) => set({ row: Math.min(Math.max(to, 0), rows - 1), draws: 0 }, "row");
  const label = row?.label ?? null;
  return h("div", { class: "stepper" },
    button("‹", () => go(state.row - 1), { "aria-label": "Previous row", disabled: state.row <= 0 }),
    h("label", { class: "field" }, h("span", {}, "Row"),
      h("input", { type: "number", id: "row-number", min: 0, max: rows - 1, value: state.row, oninput: (event) => /^\d+$/.test(event.target.value) && go(Number(event.target.value)) })),
    button("›", () => go(state.row + 1), { "aria-label": "Next row", disabled: state.row >= rows - 1 }),
    h("span", { class: "quiet" }, `of ${rows.toLocaleString("en")}`, label === null || label === undefined ? "" : `, label ${printable(row.name(label), 20)}`));
}

function openFile({ server, set }) {
  const most = Math.round(server.about.largest / 2 ** 20);
  return h("label", { class: "field wide" }, h("span", {}, `Open a file (.npz, .npy, .csv, .parquet, .safetensors; up to ${most} MiB)`),
    h("input", {
      type: "file", id: "open-file", accept: ".npz,.npy,.csv,.tsv,.parquet,.safetensors",
      onchange: async (event) => {
        const [file] = event.target.files;
        if (file && (await server.open(file))) set({ source: "file", row: 0, k: 0, draws: 0, tokens: [] });
      },
    }));
}
