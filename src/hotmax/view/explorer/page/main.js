// The page: the panels, what surrounds them, and the loop from a change to a picture.

import { decodeDigits } from "./digits.js";
import { GUIDE } from "./guide.js";
import { show, plain } from "./math/temperature.js";
import { attention } from "./panels/attention.js";
import { calibration } from "./panels/calibration.js";
import { jacobian } from "./panels/jacobian.js";
import { logits, rangeOf } from "./panels/logits.js";
import { logsumexp } from "./panels/logsumexp.js";
import { loss } from "./panels/loss.js";
import { numbers } from "./panels/numbers.js";
import { order } from "./panels/order.js";
import { sampling } from "./panels/sampling.js";
import { temperature } from "./panels/temperature.js";
import { button } from "./view/controls.js";
import { formula, h, render } from "./view/dom.js";
import { download } from "./view/download.js";
import { currentRow, SHOWN, viewOf } from "./view/rows.js";
import { Server } from "./view/server.js";
import { sourceControl } from "./view/source.js";
import { PANELS, toAddress } from "./view/state.js";
import { Store } from "./view/store.js";

const panels = { logits, temperature, order, numbers, logsumexp, jacobian, loss, sampling, attention, calibration };
const root = document.getElementById("page");
const settings = document.documentElement.dataset;
const guide = (settings.guide ?? "").split(" ").filter(Boolean); // pages that were found when this was built
const digits = decodeDigits(JSON.parse(document.getElementById("digits").textContent));

let width = 0;
let frozen = null; // the range of the logits' axis while a bar is dragged
let moved = false; // the user chose another panel: its title gets the focus
let tabled = false; // the table of numbers is open
let resized = true;
let said = "";
let shown = null; // the panel that was drawn last

const store = new Store(() => draw());
const server = new Server(settings.served === "served", () => draw());

/** Tell it on the screen and to screen readers. */
function say(text) {
  said = text;
  draw();
  setTimeout(() => {
    said = "";
    draw();
  }, 4000);
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied.`);
  } catch {
    say(`The browser forbids copying; select the text instead.`);
  }
}

function pythonOf(panel, context) {
  const lines = panel.python(context);
  const imports = lines.filter((text) => text.startsWith("from "));
  const body = lines.filter((text) => !text.startsWith("from "));
  while (body[0] === "") body.shift();
  const text = body.join("\n");
  const head = [/\bmath\./.test(text) && "import math", (/\bmath\./.test(text) || /\bnp\./.test(text)) && "", /\bnp\./.test(text) && "import numpy as np", "import hotmax as hm", ...imports];
  return `${[...head.filter((part) => part !== false && part !== ""), "", text].join("\n")}\n`;
}

function tiles(list) {
  return h("dl", { class: "tiles" }, list.map(([id, label, value, format = show]) => h("div", {},
    h("dd", { "data-number": id, "data-value": typeof value === "number" ? plain(value) : value }, typeof value === "number" ? format(value) : value),
    h("dt", {}, label))));
}

/** The probabilities as a table, for whoever cannot see or wants to copy them. */
function table({ view }) {
  // Up to 200 rows that nobody sees would take as long as the picture.
  return h("details", { class: "table", ontoggle: (event) => {
    if (tabled !== event.target.open) {
      tabled = event.target.open;
      draw();
    }
  }, open: tabled }, h("summary", {}, "The numbers"),
    tabled && h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of classes" }, h("table", {},
      h("thead", {}, h("tr", {}, ["class", "logit", "p", "log p"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, view.items.map((item) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, item.name)), [item.x, item.p, item.logp].map((v) => h("td", {}, show(v, 6)))))))));
}

function draw(again = false) {
  const started = performance.now();
  const { state } = store;
  const panel = panels[state.panel];
  const set = (changes, gesture) => {
    store.set(changes, gesture);
    // The server is asked now, not in the next frame: that is up to 16 ms sooner.
    if (store.state.source === "file" && !panels[store.state.panel].own) currentRow(store.state, digits, server);
  };
  const row = panel.own ? null : currentRow(state, digits, server);
  const view = row && viewOf(row, state.T);
  if (row && (!store.gesture || !frozen)) frozen = rangeOf(view.items.map((item) => item.x));
  const context = { state, set, store, server, digits, row, view, width: width || 600, range: frozen };
  const ready = panel.own || row;
  const code = ready ? pythonOf(panel, context) : "";
  const { page, help } = GUIDE[state.panel];
  const found = guide.includes(page);
  const title = `${panel.title} – hotmax explorer`;
  if (document.title !== title) document.title = title;

  render(root,
    h("header", {},
      h("h1", {}, h("a", { href: "#" }, "hotmax"), " explorer"),
      h("p", { class: "quiet" }, "What softmax does, on your own numbers."),
      h("div", { class: "buttons" },
        button("Undo", () => store.undo(), { id: "undo", disabled: store.past.length === 0, title: "Ctrl+Z" }),
        button("Copy link", () => {
          store.writeAddress();
          copy(location.href, "Link");
        }, { id: "copy-link" }))),
    h("nav", { "aria-label": "Panels" }, h("ol", {}, PANELS.map((id) => h("li", {},
      h("a", {
        href: toAddress({ ...state, panel: id }), "aria-current": id === state.panel ? "page" : null, "data-panel": id,
        onclick: (event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          moved = true;
          set({ panel: id });
        },
      }, panels[id].short))))),
    h("p", { class: "notice", role: "alert", hidden: !(store.notice || server.error) }, store.notice || server.error),
    h("main", { key: state.panel },
      h("h2", { id: "title", tabindex: -1 }, panel.title),
      formula(panel.formula),
      h("p", { class: "lead" }, panel.notice),
      h("div", { class: "presets buttons", role: "group", "aria-label": "Examples" }, h("span", { class: "quiet" }, "Try:"),
        panel.presets.map(([name, changes]) => button(name, () => set({ draws: 0, ...changes }), { class: "preset" }))),
      h("div", { class: "columns" },
        h("div", { class: "controls" }, !panel.own && sourceControl(context), ready && panel.controls(context)),
        h("div", { class: "results" },
          h("div", { class: "figure" }, ready ? panel.figure(context) : h("p", { class: "quiet" }, server.error ? "" : "Loading the row…")),
          ready && tiles(panel.numbers(context)),
          view && panel.part && !row.whole && h("p", { class: "quiet" }, `This panel takes the ${SHOWN} largest logits of the row for all there are.`),
          view && view.rest.count > 0 && h("p", { class: "quiet" }, `The ${SHOWN} largest of ${view.n.toLocaleString("en")} classes; the rest has the mass ${show(view.rest.mass)}.`),
          view && table(context))),
      h("section", { class: "more", "aria-label": "Take it with you" },
        h("div", { class: "buttons" },
          button("Copy as Python", () => copy(code, "Python"), { id: "copy-python" }),
          button("Download SVG", () => {
            const drawing = root.querySelector(".figure svg");
            if (drawing) download(drawing, `hotmax-${state.panel}.svg`);
          }, { id: "download-svg" }),
          found && h("a", { class: "guide", href: `${settings.guideBase}${page}.html`, rel: "noreferrer" }, "Read more in the guide"),
          h("span", { class: "quiet" }, "In Python: ", h("code", {}, `help(${help})`))),
        h("details", {}, h("summary", {}, "The same in Python"), h("pre", { id: "python", tabindex: 0 }, code)))),
    h("p", { class: "said", role: "status", "aria-live": "polite" }, said));
  if (!again && (resized || shown !== state.panel)) measure();
  if (shown !== state.panel) {
    shown = state.panel; // on a phone the list of panels scrolls sideways
    const list = root.querySelector("nav ol");
    const link = root.querySelector("nav a[aria-current]");
    list.scrollLeft = link.offsetLeft - list.offsetLeft - 40;
    if (moved) document.getElementById("title").focus({ preventScroll: true });
    moved = false;
  }
  root.dataset.drawn = String(performance.now() - started);
}

/** Draw again, after the window or the panel has changed, if the figure has another width than it was drawn for. */
function measure() {
  resized = false;
  const box = root.querySelector(".figure");
  const now = Math.floor(Math.min(box?.clientWidth ?? 0, 900));
  if (now > 0 && now !== width) {
    width = now;
    draw(true); // once: a scroll bar that comes and goes must not go on for ever
  }
}

addEventListener("resize", () => {
  resized = true;
  store.changed();
});
addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA)$/.test(event.target.tagName) && !/^(range|checkbox)$/.test(event.target.type);
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !event.shiftKey && !typing) {
    event.preventDefault();
    store.undo();
  }
});
addEventListener("beforeprint", () => store.writeAddress());

draw();
server.start().then((about) => {
  if (about?.rows && !location.hash.includes("source=")) store.state = { ...store.state, source: "file" };
  if (!about?.rows && store.state.source === "file") store.state = { ...store.state, source: "own" };
  store.changed();
});
