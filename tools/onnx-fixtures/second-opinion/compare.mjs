/** How near the library's answer comes to the golden: strings exactly, numbers within the case's own tolerance. */

import { RawImage } from "@huggingface/transformers";
import path from "node:path";

import { npy } from "./files.mjs";

/** Largest difference of a number in a tensor, by one more than its size: as the engine's own tests have it. */
const TENSOR_TOLERANCE = 1e-3;

/** Words that the library decodes from tokens, where the golden cuts them from the text: how they are spaced is not compared. */
class Decoded {
  constructor(text) {
    this.text = text;
  }

  matches(wanted) {
    const bare = (text) => text.replaceAll("##", "").replaceAll(/\s/gu, "").normalize("NFD").replaceAll(/\p{M}/gu, "").toLowerCase();
    return bare(this.text) === bare(wanted);
  }

  toJSON() {
    return this.text;
  }
}

export const decoded = (text) => new Decoded(text);

/** Differences, and the fields of the golden of which the answer says nothing. */
export async function compare(fixture, test, got) {
  const found = { wrong: [], silent: new Set(), compared: 0 };
  await walk(fixture, test, "", test.output, got, found);
  if (!found.compared) throw new Error(`${fixture.name}/${test.name}: nothing was compared`);
  return found;
}

async function walk(fixture, test, at, wanted, got, found) {
  const wrong = (why) => found.wrong.push(`${at}: ${why}`);
  if (got instanceof RawImage) {
    found.compared += 1;
    const why = await pictureDiffers(path.join(fixture.folder, wanted.file), got, test);
    if (why) wrong(why);
  } else if (got instanceof Float32Array) {
    found.compared += 1;
    const why = soundDiffers(npy(path.join(fixture.folder, wanted.file)).values, got, test);
    if (why) wrong(why);
  } else if (got instanceof Decoded) {
    found.compared += 1;
    if (!got.matches(wanted)) wrong(`${short(got)}, not ${short(wanted)}`);
  } else if (Array.isArray(wanted) && Array.isArray(got)) {
    found.compared += 1;
    if (wanted.length !== got.length) wrong(`${got.length} items, not ${wanted.length}`);
    for (let index = 0; index < Math.min(wanted.length, got.length); ++index) {
      await walk(fixture, test, `${at}[${index}]`, wanted[index], got[index], found);
    }
  } else if (isObject(wanted) && isObject(got)) {
    for (const [name, value] of Object.entries(wanted)) {
      if (got[name] === undefined) found.silent.add(name);
      else await walk(fixture, test, at ? `${at}.${name}` : name, value, got[name], found);
    }
  } else if (typeof wanted === "number" && typeof got === "number") {
    found.compared += 1;
    const tolerance = at.includes(".box") ? Math.max(test.box_tolerance ?? 0, test.tolerance) : test.tolerance;
    if (!(Math.abs(wanted - got) <= tolerance)) wrong(`${got}, not ${wanted}`);
  } else {
    found.compared += 1;
    if (wanted !== got) wrong(`${short(got)}, not ${short(wanted)}`);
  }
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function short(value) {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 90 ? `${text.slice(0, 90)}…` : text;
}

/** Sample against sample. */
function soundDiffers(wanted, got, { tolerance }) {
  if (wanted.length !== got.length) return `${got.length} samples, not ${wanted.length}`;
  const apart = wanted.reduce((most, sample, index) => Math.max(most, Math.abs(sample - got[index])), 0);
  return apart <= tolerance ? null : `samples are up to ${apart.toPrecision(2)} apart`;
}

/** Gray against gray: pixels differ by at most the tolerance, but for a share of them. */
async function pictureDiffers(file, got, test) {
  const wanted = (await RawImage.read(file)).grayscale();
  if (wanted.width !== got.width || wanted.height !== got.height) {
    return `${got.width}x${got.height} pixels, not ${wanted.width}x${wanted.height}`;
  }
  let differ = 0;
  let most = 0;
  for (let index = 0; index < wanted.data.length; ++index) {
    const apart = Math.abs(wanted.data[index] - got.data[index * got.channels]);
    most = Math.max(most, apart);
    if (apart > test.tolerance) differ += 1;
  }
  const share = differ / wanted.data.length;
  return share > (test.mask_tolerance ?? 0) ? `${(share * 100).toFixed(2)} % of its pixels differ, by up to ${most}` : null;
}

/** Where what passed through the graphs first is not what the golden has of it. */
export function tensorsDiffer(fixture, test, seen) {
  const wrong = [];
  for (const [name, file] of Object.entries(test.tensors)) {
    // Spans that a mask takes away may lie anywhere.
    if (name === "span_idx") continue;
    const wanted = npy(path.join(fixture.folder, file));
    const got = seen.get(name);
    const why = got ? tensorDiffers(wanted, got) : "was not there";
    if (why) wrong.push(`${name} ${why}`);
  }
  return wrong;
}

/** Of a smaller reference, only the leading corner of an array counts. */
function tensorDiffers(wanted, got) {
  if (wanted.dims.length !== got.dims.length || wanted.dims.some((side, index) => side > got.dims[index])) {
    return `has the shape ${got.dims}, not ${wanted.dims}`;
  }
  let [most, differ] = [0, 0];
  wanted.values.forEach((number, index) => {
    let [rest, place, step] = [index, 0, 1];
    for (let side = wanted.dims.length - 1; side >= 0; --side) {
      place += (rest % wanted.dims[side]) * step;
      rest = Math.floor(rest / wanted.dims[side]);
      step *= got.dims[side];
    }
    const apart = Math.abs(number - Number(got.data[place]));
    if (!(apart / (1 + Math.abs(number)) <= TENSOR_TOLERANCE)) differ += 1;
    most = Math.max(most, apart);
  });
  const share = ((differ / wanted.values.length) * 100).toFixed(1);
  return differ ? `differs in ${share} % of its numbers, by up to ${most.toPrecision(2)}` : null;
}
