// The random numbers of hotmax: Philox 4x32-10, a function of (seed, row, index, stream).

function multiplyHigh(a, b) {
  const a0 = a & 0xffff;
  const a1 = a >>> 16;
  const b0 = b & 0xffff;
  const b1 = b >>> 16;
  const low = a0 * b0;
  const middle = a1 * b0 + (low >>> 16);
  const other = a0 * b1 + (middle & 0xffff);
  return (a1 * b1 + Math.floor(middle / 65536) + Math.floor(other / 65536)) >>> 0;
}

export function philox(c0, c1, c2, c3, k0, k1) {
  for (let round = 0; round < 10; round++) {
    const high0 = multiplyHigh(0xd2511f53, c0);
    const low0 = Math.imul(0xd2511f53, c0) >>> 0;
    const high1 = multiplyHigh(0xcd9e8d57, c2);
    const low1 = Math.imul(0xcd9e8d57, c2) >>> 0;
    c0 = (high1 ^ c1 ^ k0) >>> 0;
    c1 = low1;
    c2 = (high0 ^ c3 ^ k1) >>> 0;
    c3 = low0;
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/** A uniform number in [0, 1) with 53 bits: the first word of hotmax's, for draw `index`. */
export function uniform(seed, index) {
  const [a, b] = philox(0, 0, index >>> 0, 0, seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0);
  return (a * 2 ** 21 + (b >>> 11)) * 2 ** -53;
}

/** A hash of an integer as a number in (0, 1): murmur's last steps, short enough to paste. */
function hashed(i) {
  let h = i >>> 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (((h ^ (h >>> 16)) >>> 0) + 0.5) * 2 ** -32;
}

/** A normal number for each integer, by Box and Muller. */
export function normal(i) {
  return Math.sqrt(-2 * Math.log(hashed(2 * i + 1))) * Math.cos(2 * Math.PI * hashed(2 * i + 2));
}

/** Classes for draws first..first+count-1: the first at which the cumulated weight passes u. */
export function draw(p, seed, first, count) {
  const ends = new Float64Array(p.length);
  let total = 0;
  for (let i = 0; i < p.length; i++) ends[i] = total += p[i];
  return Array.from({ length: count }, (_, d) => {
    const aim = uniform(seed, first + d) * total;
    let low = 0;
    let high = ends.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] > aim) high = middle;
      else low = middle + 1;
    }
    return low;
  });
}
