/** What lies beside the cases: repositories, arrays, sounds. */

import { RawImage } from "@huggingface/transformers";
import { FLACDecoder } from "@wasm-audio-decoders/flac";
import fs from "node:fs";
import path from "node:path";

const ROOT = process.env.SECOND_OPINION_FIXTURES;
export const MODELS = path.join(import.meta.dirname, "models");

/** The fixtures that have a model, or those named. */
export function fixtures(names) {
  const all = fs.readdirSync(ROOT).filter((name) => fs.existsSync(path.join(ROOT, name, "model"))).sort();
  const unknown = names.filter((name) => !all.includes(name));
  if (unknown.length) throw new Error(`no such family: ${unknown.join(", ")}; there are ${all.join(", ")}`);
  return all.filter((name) => !names.length || names.includes(name)).map(read);
}

function read(name) {
  const folder = path.join(ROOT, name);
  return { name, folder, ...JSON.parse(fs.readFileSync(path.join(folder, "cases.json"), "utf8")) };
}

/**
 * Lays a repository out as the library wants it, graphs in `onnx`; says the precision of their names, where the second half
 * of a split decoder is, and what was added.
 */
export function layOut(fixture) {
  const from = path.join(fixture.folder, "model");
  const to = path.join(MODELS, fixture.name);
  fs.rmSync(to, { recursive: true, force: true });
  const files = fs.readdirSync(from, { recursive: true }).filter((file) => fs.statSync(path.join(from, file)).isFile());
  for (const file of files) {
    const place = path.join(to, file.endsWith(".onnx") && !file.includes("/") ? path.join("onnx", file) : file);
    fs.mkdirSync(path.dirname(place), { recursive: true });
    fs.symlinkSync(path.resolve(from, file), place);
  }
  shorten(fixture, to);
  const has = (ending) => files.some((file) => file.endsWith(ending));
  const graph = (stem) => path.join(to, "onnx", `${stem}.onnx`);
  const second = has("decoder_with_past_model.onnx") && !has("decoder_model_merged.onnx") ? graph("decoder_with_past_model") : null;
  if (second) fs.renameSync(graph("decoder_model"), graph("decoder_model_merged"));
  const dtype = has("_quantized.onnx") ? "q8" : has("_q4.onnx") ? "q4" : "fp32";
  return { dtype, second, added: spellOut(fixture, to) ? ["a tokenizer.json"] : [] };
}

/** Writes sentence-transformers' longest text where the library looks for one. */
function shorten(fixture, to) {
  const { max_seq_length } = settings(fixture, "sentence_bert_config.json");
  if (!max_seq_length) return;
  replace(path.join(to, "tokenizer_config.json"), { ...settings(fixture, "tokenizer_config.json"), model_max_length: max_seq_length });
}

/** Writes the `tokenizer.json` that published conversions of wav2vec2's letters have: the library reads no other. */
function spellOut(fixture, to) {
  const { tokenizer_class, pad_token, unk_token, word_delimiter_token } = settings(fixture, "tokenizer_config.json");
  if (tokenizer_class !== "Wav2Vec2CTCTokenizer") return false;
  replace(path.join(to, "tokenizer.json"), {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [],
    normalizer: { type: "Replace", pattern: { String: " " }, content: word_delimiter_token },
    pre_tokenizer: { type: "Split", pattern: { Regex: "" }, behavior: "Isolated", invert: false },
    post_processor: null,
    decoder: { type: "CTC", pad_token, word_delimiter_token, cleanup: true },
    model: { type: "WordLevel", vocab: settings(fixture, "vocab.json"), unk_token },
  });
  return true;
}

function replace(file, value) {
  fs.rmSync(file, { force: true });
  fs.writeFileSync(file, JSON.stringify(value));
}

/** A JSON file of the repository, or nothing. */
export function settings(fixture, file) {
  const place = path.join(fixture.folder, "model", file);
  return fs.existsSync(place) ? JSON.parse(fs.readFileSync(place, "utf8")) : {};
}

export const hasFile = (fixture, file) => fs.existsSync(path.join(fixture.folder, "model", file));

/** The numbers of a file of the repository that holds nothing else, or is numpy's. */
export function floats(fixture, file) {
  if (file.endsWith(".npy")) return npy(path.join(fixture.folder, "model", file)).values;
  return new Float32Array(Uint8Array.from(fs.readFileSync(path.join(fixture.folder, "model", file))).buffer);
}

const KINDS = {
  "<f4": Float32Array, "<f8": Float64Array, "<i8": BigInt64Array, "<i4": Int32Array, "|u1": Uint8Array, "|b1": Uint8Array,
};

/** An array as numpy writes it. */
export function npy(file) {
  const bytes = fs.readFileSync(file);
  const start = 10 + bytes.readUInt16LE(8);
  const header = bytes.toString("latin1", 10, start);
  const kind = KINDS[/'descr': '([^']+)'/.exec(header)[1]];
  if (!kind || header.includes("'fortran_order': True")) throw new Error(`${file} holds ${header}`);
  const dims = /'shape': \(([^)]*)\)/.exec(header)[1].split(",").map((side) => side.trim()).filter(Boolean).map(Number);
  const values = new kind(Uint8Array.from(bytes.subarray(start)).buffer);
  return { dims, values: Float64Array.from(values, Number) };
}

/** The picture of a case. */
export const picture = (fixture, test) => RawImage.read(path.join(fixture.folder, test.input.image.file));

/** The sound of a case. */
export const sound = (fixture, test) => samples(path.join(fixture.folder, test.input.audio.file));

/** Samples of a sound with one channel at the rate that speech models read. */
async function samples(file) {
  const bytes = fs.readFileSync(file);
  if (file.endsWith(".wav")) {
    const data = bytes.indexOf("data") + 8;
    if (bytes.readUInt16LE(22) !== 1 || bytes.readUInt32LE(24) !== 16000 || bytes.readUInt16LE(34) !== 16) {
      throw new Error(`${file} is not 16 bits of one channel at 16 kHz`);
    }
    const pcm = new Int16Array(Uint8Array.from(bytes.subarray(data, data + bytes.readUInt32LE(data - 4))).buffer);
    return Float32Array.from(pcm, (level) => level / 32768);
  }
  const decoder = new FLACDecoder();
  await decoder.ready;
  // Without something behind it, the reader may lose the last frame.
  const { channelData, sampleRate } = await decoder.decodeFile(Buffer.concat([bytes, Buffer.alloc(64)]));
  decoder.free();
  if (sampleRate !== 16000 || channelData.length !== 1) throw new Error(`${file} is not one channel at 16 kHz`);
  const said = bytes.readUInt32BE(22);
  if (channelData[0].length !== said) throw new Error(`${file} has ${said} samples, of which ${channelData[0].length} were read`);
  return channelData[0];
}
