/**
 * What is put in place of a part of the library that is known to differ, so that all its other parts can be compared.
 * A case is asked without any first; verdicts name those that it took to agree.
 */

import { LogitsProcessor, LogitsProcessorList, RawImage, interpolate_4d } from "@huggingface/transformers";

import { picture, sound } from "./files.mjs";
import { resize } from "./pillow.mjs";

/** Puts a value in a place and gives what takes it away again. */
function put(holder, name, value) {
  const [own, old] = [Object.hasOwn(holder, name), holder[name]];
  holder[name] = value;
  return () => (own ? (holder[name] = old) : delete holder[name]);
}

/** The library reads single pixels where Pillow weighs areas. */
const resampling = {
  name: "Pillow's resampling",
  applies: ({ input }) => Boolean(input.image),
  apply: () => put(RawImage.prototype, "resize", resize),
};

/** The library enlarges pictures until the longest edge is reached, and knows nothing of the multiples of 16 that YOLOS takes. */
const sizes = {
  name: "Python's sizes",
  applies: ({ input }, { processor }) => {
    const { longest_edge, shortest_edge } = processor?.image_processor?.size ?? {};
    return Boolean(input.image && longest_edge && shortest_edge);
  },
  async apply({ processor: { image_processor } }, fixture, test) {
    const { width, height } = await picture(fixture, test);
    const { shortest_edge, longest_edge } = image_processor.size;
    const [short, long] = [Math.min(width, height), Math.max(width, height)];
    const fits = (long / short) * shortest_edge <= longest_edge;
    const least = fits ? shortest_edge : (longest_edge * short) / long;
    const multiple = image_processor.config.image_processor_type.startsWith("Yolos") ? 16 : 1;
    const whole = (edge) => Math.floor(edge / multiple) * multiple;
    const side = (edge) => whole(edge === short ? Math.round(least) : Math.trunc((least * long) / short));
    return put(image_processor, "size", { width: side(width), height: side(height) });
  },
};

/** RT-DETR has no class for nothing: its scores are sigmoids, and the best of all boxes and classes count. */
const sigmoids = {
  name: "sigmoid scores",
  applies: (test, { model }) => model.config.model_type === "rt_detr",
  apply({ processor: { image_processor } }) {
    const own = image_processor.post_process_object_detection.bind(image_processor);
    return put(image_processor, "post_process_object_detection", (outputs, threshold, places) =>
      own(outputs, threshold, places, true).map(({ boxes, classes, scores }) => {
        const order = [...scores.keys()].sort((left, right) => scores[right] - scores[left]).slice(0, outputs.logits.dims[1]);
        const sorted = (values) => order.map((index) => values[index]);
        return { boxes: sorted(boxes), classes: sorted(classes), scores: sorted(scores) };
      }),
    );
  },
};

/** The library scales depth linearly. */
const bicubic = {
  name: "bicubic depth",
  applies: (test, { task }) => task === "depth-estimation",
  async apply(pipe, fixture, test) {
    const { width, height } = await picture(fixture, test);
    const model = pipe.model;
    const scaled = async (inputs) => {
      const { predicted_depth } = await model(inputs);
      const map = predicted_depth.view(1, 1, ...predicted_depth.dims.slice(-2));
      const large = await interpolate_4d(map, { size: [height, width], mode: "bicubic" });
      return { predicted_depth: large.view(1, height, width) };
    };
    return put(pipe, "model", Object.assign(scaled, { sessions: model.sessions, config: model.config }));
  },
};

/** The library cuts a text behind its last special tokens, and of a pair the second text. */
const truncation = {
  name: "special tokens kept",
  applies: ({ input }, { tokenizer }) => {
    const texts = [input.text ?? input.input ?? []].flat();
    return Boolean(tokenizer) && texts.some((text) => tokenizer(text).input_ids.dims[1] > tokenizer.model_max_length);
  },
  apply({ tokenizer }) {
    const own = tokenizer._encode_plus.bind(tokenizer);
    return put(tokenizer, "_encode_plus", (text, options = {}) => {
      const whole = own(text, options);
      const bare = own(text, { add_special_tokens: false }).input_ids;
      const surplus = whole.input_ids.length - tokenizer.model_max_length;
      const end = bare.length + (whole.input_ids[0] === bare[0] ? 0 : 1);
      const kept = (value, index) => surplus <= 0 || index < end - surplus || index >= end;
      return Object.fromEntries(Object.entries(whole).map(([name, values]) => [name, values.filter(kept)]));
    });
  },
};

/** The library drops tokens that decode to nothing: unknown ones, which it takes for special, and lone spaces. */
const blankTokens = {
  name: "entities of unknown and blank tokens",
  applies: (test, { task }) => task === "token-classification",
  apply({ tokenizer }) {
    const own = tokenizer.decode.bind(tokenizer);
    const outer = new Set(tokenizer("").input_ids.tolist()[0].map(Number));
    return put(tokenizer, "decode", (ids, options) => {
      const inner = ids.map(Number).every((id) => !outer.has(id));
      return inner ? own(ids, { ...options, skip_special_tokens: false }) || "▁" : own(ids, options);
    });
  },
};

const isGliner = (test, { model }) => model.config.model_type === "gliner";

/** GLiNER.js parts words at all letters that ASCII has not, and emoji in two. */
const words = {
  name: "Unicode's words",
  applies: isGliner,
  apply: ({ engine }) =>
    put(engine.model.processor.wordsSplitter, "whitespacePattern", /[\p{L}\p{N}_]+(?:[-_][\p{L}\p{N}_]+)*|\S/gu),
};

/** GLiNER.js does not mask spans that reach beyond the text: its decoder leaves them out. */
const spanMasks = {
  name: "masks of spans",
  applies: isGliner,
  apply({ engine: { model: { processor } } }) {
    const own = processor.prepareSpans.bind(processor);
    return put(processor, "prepareSpans", (tokens, width) => {
      const { spanIdxs } = own(tokens, width);
      const masks = (spans, text) => spans.map(([start], index) => start + (index % width) < tokens[text].length);
      return { spanIdxs, spanMasks: spanIdxs.map(masks) };
    });
  },
};

/** GLiNER.js takes the end of an entity, which is that of the next where no space is between them, for a part of it. */
const touching = {
  name: "entities that touch",
  applies: isGliner,
  apply({ engine: { model: { decoder } } }) {
    const own = decoder.greedySearch.bind(decoder);
    const moved = (by) => ([text, start, end, ...rest]) => [text, start, end + by, ...rest];
    return put(decoder, "greedySearch", (spans, ...more) => own(spans.map(moved(-1)), ...more).map(moved(1)));
  },
};

/** The library knows Moonshine's graphs without a mask; optimum's have one. */
const mask = {
  name: "Moonshine's mask",
  applies: (test, { model }) => model.config.model_type === "moonshine",
  apply: ({ model }) => put(model, "forward_params", [...model.forward_params, "attention_mask"]),
};

/** The rules of Whisper's times that the library leaves out: the first is early, and none is before another. */
class Times extends LogitsProcessor {
  constructor({ no_timestamps_token_id, max_initial_timestamp_index }) {
    super();
    this.first = no_timestamps_token_id + 1;
    this.latest = this.first + max_initial_timestamp_index;
    // The library sets this to the number of tokens that begin a reply.
    this.begin_index = 0;
  }

  _call(ids, logits) {
    ids.forEach((row, index) => {
      const said = row.slice(this.begin_index).map(Number);
      const scores = logits[index].data;
      if (!said.length) scores.subarray(this.latest + 1).fill(-Infinity);
      const times = said.filter((id) => id >= this.first);
      if (!times.length) return;
      const closes = said.at(-1) >= this.first && said.length > 1 && said.at(-2) < this.first;
      scores.subarray(this.first, times.at(-1) + (closes ? 0 : 1)).fill(-Infinity);
    });
    return logits;
  }
}

const times = {
  name: "all rules of Whisper's times",
  applies: (test, { model }) => model.config.model_type === "whisper",
  apply({ model }) {
    const own = model.generate.bind(model);
    return put(model, "generate", (options) => {
      const rules = new LogitsProcessorList();
      rules.push(new Times(model.generation_config));
      return own({ ...options, logits_processor: rules });
    });
  },
};

/** The library cuts what it hears to one window, and reads longer recordings in pieces that overlap. */
const windows = {
  name: "windows one after another",
  applies: async (test, { model, processor }, fixture) =>
    model.config.model_type === "whisper" && (await sound(fixture, test)).length > processor.feature_extractor.config.n_samples,
  async apply({ processor }, fixture, test) {
    const { feature_extractor } = processor;
    const { hop_length } = feature_extractor.config;
    const { length } = await sound(fixture, test);
    const longer = { ...feature_extractor.config, n_samples: length, nb_max_frames: Math.ceil(length / hop_length) };
    return put(feature_extractor, "config", longer);
  },
};

/**
 * The library's segments are the pairs of times that were said, as the Python pipeline's are; the golden's are those of `generate`,
 * which like OpenAI's own program begins a segment at its window where no two times stand side by side.
 */
const textAlone = {
  name: "no segments",
  applies: ({ input }, { model }) => model.config.model_type === "whisper" && Boolean(input.timestamps),
  apply: (pipe) => put(pipe, "textAlone", true),
};

export const REMEDIES = [resampling, sizes, sigmoids, bicubic, truncation, blankTokens, words, spanMasks, touching, mask, times, windows, textAlone];
