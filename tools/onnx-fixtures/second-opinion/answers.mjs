/** How each task is put to transformers.js, and its answer in the marketplace's schema as far as it says so much. */

import {
  AutoModel, AutoProcessor, PretrainedConfig, RawImage, SamModel, SpeechT5ForTextToSpeech, SpeechT5HifiGan, Tensor, VitsModel, ones_like, pipeline,
} from "@huggingface/transformers";
import { env as gliners } from "@xenova/transformers";
import { Gliner } from "gliner/node";
import path from "node:path";

import { decoded } from "./compare.mjs";
import { MODELS, floats, hasFile, npy, picture, settings, sound } from "./files.mjs";

/** Something that a case asks for and the library has no way to be asked. */
export class Lacks extends Error {}

const one = { intraOpNumThreads: 1, interOpNumThreads: 1 };
const options = (dtype) => ({ dtype, device: "cpu", local_files_only: true, session_options: one });

/** A pipeline by its task's name there. */
const piped = (name, ask) => ({ load: (fixture, dtype) => pipeline(name, fixture.name, options(dtype)), ask });

const ranked = (scores) => ({ ...scores[0], scores });

async function classify(pipe, fixture, { input }) {
  const all = Object.keys(pipe.model.config.id2label).length;
  const found = await pipe(input.text, { top_k: input.top_k ?? all });
  return ranked(found);
}

async function judge(pipe, fixture, { input }) {
  const { multi_label, hypothesis_template } = input;
  const found = await pipe(input.text, input.labels, { multi_label, hypothesis_template });
  return ranked(found.labels.map((label, index) => ({ label, score: found.scores[index] })));
}

async function findEntities(pipe, fixture, { input }) {
  const found = await pipe(input.text, { aggregation_strategy: input.aggregation ?? "simple" });
  const entities = found
    .filter((entity) => entity.score >= (input.threshold ?? 0))
    .map(({ entity, entity_group, score, word }) => {
      // No words of the text: unknown tokens and lone spaces.
      const lost = word.includes(pipe.tokenizer.unk_token) || /^[▁\s]*$/u.test(word);
      return { label: entity_group ?? entity, score, text: lost ? undefined : decoded(word) };
    });
  return { entities };
}

async function answer(pipe, fixture, { input }) {
  const found = await pipe(input.question, input.context, { top_k: input.top_k ?? 1 });
  const answers = [found].flat().map(({ answer, score }) => ({ answer: decoded(answer), score }));
  return { ...answers[0], answers };
}

async function fill(pipe, fixture, { input }) {
  const found = await pipe(input.text, { top_k: input.top_k ?? 5 });
  return { candidates: found.map(({ token_str, score, sequence }) => ({ token: token_str, score, text: sequence })) };
}

/** Embeddings, with what sentence-transformers' settings say and the library leaves to its users. */
async function embed(pipe, fixture, test) {
  const { input } = test;
  const sentences = settings(fixture, "config_sentence_transformers.json");
  const pooling = settings(fixture, "1_Pooling/config.json");
  const modules = settings(fixture, "modules.json");
  const prompt = sentences.prompts?.[input.prompt ?? sentences.default_prompt_name] ?? "";
  const texts = [input.input].flat().map((text) => prompt + text);
  const normalize = modules.some((module) => module.type.endsWith("Normalize"));
  const alone = test.reference?.includes("one text at a time") ?? false;
  const rows = [];
  for (const batch of alone ? texts : [texts]) {
    const found = await pooled(pipe, batch, pooling);
    const cut = input.dimensions ? found.slice(null, [0, input.dimensions]) : found;
    rows.push(...(normalize ? cut.normalize(2, -1) : cut).tolist());
  }
  return { embeddings: rows, dimensions: rows[0].length };
}

/** Kinds of pooling, by both of the names that sentence-transformers has for each, as the library calls them. */
const POOLING = {
  cls: "cls", pooling_mode_cls_token: "cls", mean: "mean", pooling_mode_mean_tokens: "mean",
  lasttoken: "last_token", pooling_mode_lasttoken: "last_token",
};

async function pooled(pipe, texts, pooling) {
  const flag = Object.keys(pooling).find((key) => key.startsWith("pooling_mode_") && pooling[key] === true);
  const kind = pooling.pooling_mode ?? flag;
  if (POOLING[kind]) return pipe(texts, { pooling: POOLING[kind] });
  const found = await pipe.model(pipe.tokenizer(texts, { padding: true, truncation: true }));
  if (!found.sentence_embedding) throw new Lacks(`no pooling of the kind ${kind}`);
  return found.sentence_embedding;
}

const GENERATION = [
  "num_beams", "max_new_tokens", "min_length", "length_penalty", "early_stopping", "no_repeat_ngram_size", "repetition_penalty",
];

/**
 * What a case says of generation, before what the repository says for the task, of which the library reads the prefix alone.
 * The library's own limit of new tokens would go before the repository's.
 */
function generation(fixture, input, task) {
  const { prefix, ...usual } = settings(fixture, "config.json").task_specific_params?.[task] ?? {};
  const said = Object.fromEntries(GENERATION.filter((key) => key in input).map((key) => [key, input[key]]));
  return { max_new_tokens: null, ...usual, ...said };
}

/** Refuses what only beams can say: the library reads `num_beams` and follows one continuation. */
function demandGreedy(fixture, said) {
  const beams = said.num_beams ?? settings(fixture, "generation_config.json").num_beams ?? 1;
  if (beams > 1) throw new Lacks("no beam search");
}

async function write(pipe, fixture, { input }) {
  const { source, target } = input;
  const languages = pipe.tokenizer._build_translation_inputs ? { src_lang: source, tgt_lang: target } : {};
  if (settings(fixture, "config.json").task_specific_params && source) pipe.task = `translation_${source}_to_${target}`;
  const said = generation(fixture, input, pipe.task);
  const found = await pipe(input.text, { ...said, ...languages });
  demandGreedy(fixture, said);
  return { text: Object.values(found[0])[0] };
}

async function describe(pipe, fixture, test) {
  const found = await pipe(await picture(fixture, test), generation(fixture, test.input));
  demandGreedy(fixture, test.input);
  const text = found[0].generated_text;
  return { text, lines: [{ text }] };
}

async function listen(pipe, fixture, test) {
  const { input } = test;
  const kind = pipe.model.config.model_type;
  const audio = await sound(fixture, test);
  // The golden's limit counts the token that begins a reply.
  if (kind === "moonshine") return pipe(audio, { max_new_tokens: test.max_length - 1 });
  if (kind !== "whisper") return pipe(audio);
  const { chunk_length, n_samples } = pipe.processor.feature_extractor.config;
  const long = audio.length > chunk_length * 16000;
  const found = await pipe(audio, {
    language: input.language,
    task: input.task,
    // Times are what leads from one window to the next.
    return_timestamps: input.timestamps === "segment" || (long && audio.length <= n_samples),
    chunk_length_s: audio.length > n_samples ? chunk_length : 0,
    num_beams: input.num_beams,
  });
  demandGreedy(fixture, input);
  if (pipe.model.generation_config.is_multilingual && !input.language) throw new Lacks("no detection of a language");
  // Where the remedy specifies it, only the text counts.
  const segments = pipe.textAlone ? undefined : found.chunks?.map(({ timestamp: [start, end], text }) => ({ start, end, text: text.trim() }));
  return { text: found.text.trim(), segments };
}

/** The golden's tokens, where the library has no way to read the text. */
function tokens(fixture, test) {
  const file = test.tensors?.input_ids;
  if (!file) throw new Lacks("no tokenizer.json, and the golden keeps no tokens");
  const { dims, values } = npy(path.join(fixture.folder, file));
  return new Tensor("int64", BigInt64Array.from(values, BigInt), dims);
}

/** Voices whose repositories have no `tokenizer.json` are given the golden's tokens. */
const vits = {
  load: async (fixture, dtype) => ({
    model: await VitsModel.from_pretrained(fixture.name, options(dtype)),
    given: ["the golden's tokens"],
    dispose() {
      return this.model.dispose();
    },
  }),
  async ask({ model }, fixture, test) {
    const input_ids = tokens(fixture, test);
    const { waveform } = await model({ input_ids, attention_mask: ones_like(input_ids) });
    return { audio: waveform.data, sample_rate: model.config.sampling_rate };
  },
};

/** What refines and what sounds is one graph here, of which the library knows the vocoder; it may be in a folder of its own. */
const speecht5 = {
  async load(fixture, dtype) {
    const apart = hasFile(fixture, "vocoder/onnx/model.onnx");
    const place = apart ? `${fixture.name}/vocoder` : fixture.name;
    const file = apart ? {} : { model_file_name: "decoder_postnet_and_vocoder" };
    const config = new PretrainedConfig({ model_type: "hifigan" });
    return {
      model: await SpeechT5ForTextToSpeech.from_pretrained(fixture.name, options(dtype)),
      vocoder: await SpeechT5HifiGan.from_pretrained(place, { ...options(dtype), ...file, config }),
      given: ["the golden's tokens"],
      async dispose() {
        await this.vocoder.dispose();
        await this.model.dispose();
      },
    };
  },
  async ask({ model, vocoder }, fixture, test) {
    const { speaker_embeddings = "speaker_embeddings.bin", minlenratio, maxlenratio } = fixture.engine ?? {};
    const speaker = test.input.speaker_embeddings ?? floats(fixture, speaker_embeddings);
    const speakers = new Tensor("float32", Float32Array.from(speaker), [1, speaker.length]);
    const { waveform } = await model.generate_speech(tokens(fixture, test), speakers, { minlenratio, maxlenratio, vocoder });
    return { audio: waveform.data };
  },
};

async function see(pipe, fixture, test) {
  return ranked(await pipe(await picture(fixture, test), { top_k: test.input.top_k ?? 5 }));
}

async function detect(pipe, fixture, test) {
  const image = await picture(fixture, test);
  // The library's own threshold is 0.9, the Python pipeline's 0.5.
  const found = await pipe(image, { threshold: test.input.threshold ?? 0.5 });
  return { detections: found, width: image.width, height: image.height };
}

async function segment(pipe, fixture, test) {
  const image = await picture(fixture, test);
  // The Python pipeline's thresholds: the library drops what is covered by a fifth, not by half.
  const { threshold = 0.9, mask_threshold = 0.5, overlap_mask_area_threshold = 0.5 } = test.input;
  const found = await pipe(image, { threshold, mask_threshold, overlap_mask_area_threshold });
  const segments = found.map(({ label, score, mask }) => ({ label: label ?? undefined, score: score ?? undefined, mask }));
  return { segments, width: image.width, height: image.height };
}

async function estimateDepth(pipe, fixture, test) {
  const { depth } = await pipe(await picture(fixture, test));
  return { depth, width: depth.width, height: depth.height };
}

/** SAM has no pipeline: its processor and model, and of three masks the one of the highest score. */
const sam = {
  load: async (fixture, dtype) => ({
    processor: await AutoProcessor.from_pretrained(fixture.name, options(dtype)),
    model: await SamModel.from_pretrained(fixture.name, options(dtype)),
    dispose() {
      return this.model.dispose();
    },
  }),
  async ask({ processor, model }, fixture, test) {
    const image = await picture(fixture, test);
    const { points } = test.input;
    const inputs = await processor(image, {
      input_points: [points.map(({ x, y }) => [x, y])],
      input_labels: [points.map(({ positive }) => (positive ? 1 : 0))],
    });
    const { pred_masks, iou_scores } = await model(inputs);
    const [masks] = await processor.post_process_masks(pred_masks, inputs.original_sizes, inputs.reshaped_input_sizes);
    const scores = iou_scores.tolist()[0][0];
    const best = scores.indexOf(Math.max(...scores));
    const [, , height, width] = masks.dims;
    const bits = masks.data.subarray(best * height * width, (best + 1) * height * width);
    const mask = new RawImage(Uint8ClampedArray.from(bits, (bit) => bit * 255), width, height, 1);
    return { segments: [{ label: undefined, score: scores[best], mask }], width: image.width, height: image.height };
  },
};

/** RMBG's own type is of another model, so the library is told that it is none; its mask is scaled as its card says. */
const rmbg = {
  load: async (fixture, dtype) => ({
    processor: await AutoProcessor.from_pretrained(fixture.name, options(dtype)),
    model: await AutoModel.from_pretrained(fixture.name, { ...options(dtype), config: { model_type: "custom" } }),
    dispose() {
      return this.model.dispose();
    },
  }),
  async ask({ processor, model }, fixture, test) {
    const image = await picture(fixture, test);
    const { pixel_values } = await processor(image);
    const { output } = await model({ input: pixel_values });
    const mask = await RawImage.fromTensor(output[0].mul(255).to("uint8")).resize(image.width, image.height);
    return { segments: [{ mask }], width: image.width, height: image.height };
  },
};

/** GLiNER.js, which has a transformers.js of its own. */
const gliner = {
  async load(fixture) {
    gliners.allowRemoteModels = false;
    gliners.localModelPath = MODELS;
    const engine = new Gliner({
      tokenizerPath: fixture.name,
      maxWidth: settings(fixture, "gliner_config.json").max_width,
      onnxSettings: { modelPath: path.join(MODELS, fixture.name, "onnx/model.onnx") },
      transformersSettings: { allowLocalModels: true },
    });
    await engine.initialize();
    const { session } = engine.model.onnxWrapper;
    return { engine, model: { config: { model_type: "gliner" }, sessions: { session } }, dispose: () => session.release() };
  },
  async ask({ engine }, fixture, { input: { text, labels, threshold } }) {
    const [found] = await engine.inference({ texts: [text], entities: labels, threshold });
    // The library counts in UTF-16.
    const place = (end) => [...text.slice(0, end)].length;
    const entities = found.map(({ spanText, start, end, label, score }) => ({
      text: spanText, start: place(start), end: place(end), label, score,
    }));
    return { entities };
  },
};

const TASKS = {
  "text-classification": piped("text-classification", classify),
  "zero-shot-classification": piped("zero-shot-classification", judge),
  "token-classification": piped("token-classification", findEntities),
  "question-answering": piped("question-answering", answer),
  "fill-mask": piped("fill-mask", fill),
  "feature-extraction": piped("feature-extraction", embed),
  translation: piped("translation", write),
  summarization: piped("summarization", write),
  "text2text-generation": piped("text2text-generation", write),
  "automatic-speech-recognition": piped("automatic-speech-recognition", listen),
  "image-classification": piped("image-classification", see),
  "object-detection": piped("object-detection", detect),
  "image-segmentation": piped("image-segmentation", segment),
  "depth-estimation": piped("depth-estimation", estimateDepth),
  "image-to-text": piped("image-to-text", describe),
  ocr: piped("image-to-text", describe),
};

/** Families for which the library has no pipeline, or none that loads their files. */
const OWN = { gliner, sam, rmbg, speecht5, "speecht5-split": speecht5, "mms-tts": vits };

const unasked = (task) => ({
  async load() {
    throw new Lacks(`no way to ask for ${task}`);
  },
});

/** What answers the cases of a task. */
export const asked = (fixture, task) => OWN[fixture.name] ?? TASKS[task] ?? unasked(task);
