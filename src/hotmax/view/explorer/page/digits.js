// The embedded classifier: logits for 1597 handwritten digits that it has not seen.

/** { logits, labels, rows, classes } from what stands in the page. */
export function decodeDigits({ rows, classes, scale, logits, labels }) {
  const bytes = Uint8Array.from(atob(logits), (c) => c.charCodeAt(0));
  const whole = new DataView(bytes.buffer);
  const values = new Float64Array(rows * classes);
  for (let i = 0; i < values.length; i++) values[i] = whole.getInt16(2 * i, true) / scale;
  return { logits: values, labels: Int32Array.from(labels, Number), rows, classes };
}
