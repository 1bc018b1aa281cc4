/** Pillow's resampling of pictures of eight bits, to put in place of the library's, which reads single pixels where Pillow weighs areas. */

const FILTERS = {
  2: { support: 1, weight: (x) => Math.max(0, 1 - Math.abs(x)) },
  3: { support: 2, weight: (x) => cubic(Math.abs(x)) },
  1: { support: 3, weight: (x) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0) },
};
const BITS = 22;

function cubic(x) {
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

/** For each pixel of the new side, where it begins to read and its whole-numbered weights. */
function windows(from, to, { support, weight }) {
  const scale = from / to;
  const wide = Math.max(scale, 1);
  return Array.from({ length: to }, (_, index) => {
    const centre = (index + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support * wide + 0.5));
    const last = Math.min(from, Math.trunc(centre + support * wide + 0.5));
    const weights = Array.from({ length: last - first }, (_, step) => weight((step + first - centre + 0.5) / wide));
    const sum = weights.reduce((left, right) => left + right, 0);
    const whole = (share) => Math.trunc((share / sum) * 2 ** BITS + (share < 0 ? -0.5 : 0.5));
    return { first, weights: weights.map(whole) };
  });
}

/** Resamples `lines` lines of `from` pixels, the pixel `at` of a line lying at `place(line, at)` of the source. */
function pass(source, to, from, lines, channels, filter, place, target) {
  const out = new Uint8ClampedArray(lines * to * channels);
  windows(from, to, filter).forEach(({ first, weights }, index) => {
    for (let line = 0; line < lines; ++line) {
      for (let channel = 0; channel < channels; ++channel) {
        let sum = 2 ** (BITS - 1);
        weights.forEach((weight, step) => (sum += weight * source[place(line, first + step) * channels + channel]));
        out[target(line, index) * channels + channel] = Math.floor(sum / 2 ** BITS);
      }
    }
  });
  return out;
}

/** `RawImage.resize` with Pillow's filters; `resample` is Pillow's number of one. */
export async function resize(width, height, { resample = 2 } = {}) {
  const filter = FILTERS[resample];
  if (!filter) throw new Error(`no filter of the number ${resample}`);
  const { width: from, height: rows, channels } = this;
  let data = this.data;
  if (width !== from) {
    data = pass(data, width, from, rows, channels, filter, (row, at) => row * from + at, (row, at) => row * width + at);
  }
  if (height !== rows) {
    data = pass(data, height, rows, width, channels, filter, (column, at) => at * width + column, (column, at) => at * width + column);
  }
  return new this.constructor(data, width, height, channels);
}
