/** A decoder in two graphs, for the first step and for those with a cache, as the one that the library wants. */

import { InferenceSession } from "onnxruntime-node";

class Joined {
  constructor(first, next) {
    Object.assign(this, { first, next });
    const inputs = new Map([...next.inputMetadata, ...first.inputMetadata].map((input) => [input.name, input]));
    this.inputNames = [...inputs.keys()];
    this.inputMetadata = [...inputs.values()];
  }

  /** A cache of no length is the first step's. */
  async run(feeds, ...more) {
    const isFirst = Object.entries(feeds).some(([name, { dims }]) => name.startsWith("past_key_values") && dims.includes(0));
    const session = isFirst ? this.first : this.next;
    return session.run(Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]])), ...more);
  }

  async release() {
    await Promise.all([this.first.release(), this.next.release()]);
  }
}

/** Puts both graphs in the place of the first, which the library took for the merged one. */
export async function join(model, file) {
  const next = await InferenceSession.create(file, { intraOpNumThreads: 1, interOpNumThreads: 1 });
  model.sessions.decoder_model_merged = new Joined(model.sessions.decoder_model_merged, next);
}
