// A picture as an SVG file that looks the same without this page's style.

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "fill-opacity", "stroke-opacity", "opacity", "font-size", "font-weight", "font-family", "font-style", "text-anchor"];

/** The drawing as text, each element with the style that it has on the page. */
export function standalone(drawing) {
  const copy = drawing.cloneNode(true);
  const originals = [drawing, ...drawing.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of KEPT) {
      const value = style.getPropertyValue(name);
      if (value && node.tagName !== "title") node.setAttribute(name, value);
    }
    for (const name of ["class", "style", "tabindex", "role"]) node.removeAttribute(name);
    for (const { name } of [...node.attributes]) if (/^(aria|data)-/.test(name)) node.removeAttribute(name);
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor })) {
    paper.setAttribute(name, value);
  }
  copy.prepend(paper);
  return new XMLSerializer().serializeToString(copy);
}

export function download(drawing, name) {
  const address = URL.createObjectURL(new Blob([standalone(drawing)], { type: "image/svg+xml" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
