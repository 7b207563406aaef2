// Elements described by plain objects, and a document that is changed only where they differ.

const SVG = "http://www.w3.org/2000/svg";

/** Describe an element. Children may be nested lists; null, undefined and false are left out. */
export function h(tag, props, ...children) {
  const kept = children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);
  return { tag, props: props ?? {}, children: kept };
}

function dispatch(event) {
  this.described.props[`on${event.type}`]?.(event);
}

function setProperty(node, name, value) {
  if (name.startsWith("on")) {
    node.listening ??= new Set();
    if (!node.listening.has(name)) {
      node.listening.add(name);
      node.addEventListener(name.slice(2), dispatch, name === "onwheel" ? { passive: false } : undefined);
    }
  } else if (name === "value" && node.tagName !== "LI") {
    // What a person is typing is left alone.
    if (node !== document.activeElement || node.type === "range" || node.tagName === "SELECT") {
      if (node.value !== String(value ?? "")) node.value = value ?? "";
    }
  } else if (name === "checked" || name === "open" || name === "disabled") {
    if (node[name] !== Boolean(value)) node[name] = Boolean(value);
  } else if (name === "style") {
    for (const [key, each] of Object.entries(value ?? {})) node.style.setProperty(key, each);
  } else if (value === null || value === undefined || value === false) {
    node.removeAttribute(name);
  } else {
    node.setAttribute(name, value === true ? "" : value);
  }
}

function create(described, inSvg) {
  const svg = inSvg || described.tag === "svg";
  const node = svg ? document.createElementNS(SVG, described.tag) : document.createElement(described.tag);
  node.described = { tag: described.tag, props: {}, children: [] };
  update(node, described);
  return node;
}

function update(node, described) {
  const old = node.described;
  if (old === described) return; // what a panel has kept is as it was
  node.described = described;
  const svg = node.namespaceURI === SVG;
  described.children.forEach((child, i) => {
    const there = node.childNodes[i];
    if (typeof child !== "object") {
      const text = String(child);
      if (there?.nodeType === Node.TEXT_NODE) {
        if (there.data !== text) there.data = text;
      } else if (there) there.replaceWith(text);
      else node.append(text);
    } else if (there?.described?.tag === child.tag && there.described.props.key === child.props.key) {
      update(there, child);
    } else {
      const made = create(child, svg);
      if (there) there.replaceWith(made);
      else node.append(made);
    }
  });
  while (node.childNodes.length > described.children.length) node.lastChild.remove();
  // Properties come last: the value of a select needs its options.
  for (const name of Object.keys(old.props)) {
    if (!(name in described.props) && !name.startsWith("on")) setProperty(node, name, null);
  }
  for (const [name, value] of Object.entries(described.props)) {
    const always = name === "value" || name === "checked";
    if (name !== "key" && (always || value !== old.props[name])) setProperty(node, name, value);
  }
}

/** Make the children of `root` those described. */
export function render(root, ...children) {
  root.described ??= { tag: root.tagName.toLowerCase(), props: {}, children: [] };
  update(root, h(root.described.tag, {}, ...children));
}

/** A name without what would move text about: control characters and changes of direction. */
export function printable(name, most = 60) {
  // eslint-disable-next-line no-control-regex
  const text = String(name).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, "\ufffd");
  const points = Array.from(text.slice(0, 2 * most + 2));
  return points.length > most ? `${points.slice(0, most - 1).join("")}…` : text;
}

/** "p_i = x^{2}" with subscripts and superscripts, and single letters but "a" in italics. */
function pieces(text) {
  const letters = (piece) => piece.split(/(?<![\p{L}])((?!a)\p{L})(?![\p{L}])/u).map((part, i) => (i % 2 ? h("var", {}, part) : part));
  return text.split(/([_^](?:\{[^}]*\}|[\p{L}\d]))/u).map((part, i) => {
    if (i % 2 === 0) return letters(part);
    return h(part[0] === "_" ? "sub" : "sup", {}, pieces(part.slice(1).replace(/^\{|\}$/g, "")));
  });
}

export function formula(text) {
  return h("p", { class: "formula" }, pieces(text));
}
