// Loads each file in llama.cpp and decodes a few tokens: `node check.mjs FILE...`.
// Needs the npm package node-llama-cpp.
import { getLlama } from "node-llama-cpp";

const llama = await getLlama({ gpu: false, logLevel: "error" });
for (const path of process.argv.slice(2)) {
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ contextSize: 512, threads: 2 });
  const sequence = context.getSequence();
  const asked = model.tokenize("<|im_start|>user\nHello, 3 islands!<|im_end|>\n<|im_start|>assistant\n", true);
  const reply = [];
  const start = Date.now();
  for await (const token of sequence.evaluate(asked, { temperature: 0.7, yieldEogToken: true })) {
    reply.push(token);
    if (reply.length >= 16) break;
  }
  const { architecture, name } = model.fileInfo.metadata.general;
  if (reply.length !== 16) throw new Error(`${path}: ${reply.length} tokens`);
  console.log(`${name} [${architecture}] vocabulary ${model.fileInfo.metadata[architecture].vocab_size}, ` +
    `eos ${model.tokens.eos}, ${asked.length} prompt tokens, 16 new tokens in ${Date.now() - start} ms: ${reply.join(" ")}`);
  await context.dispose();
  await model.dispose();
}
process.exit(0);
