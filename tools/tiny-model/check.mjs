// Compares llama.cpp with sample.py, token by token: `node check.mjs MODEL.gguf FILE`, where FILE holds
// the lines of `sample.py --greedy-ids`. Needs the npm package node-llama-cpp. Fails on a different
// tokenization, or on a different reply (a late fork between near-equal logits is reported, not failed).
import fs from "node:fs";
import { getLlama } from "node-llama-cpp";

const [path, lines] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, logLevel: "error" });
const model = await llama.loadModel({ modelPath: path });
const context = await model.createContext({ contextSize: 1024, threads: 1 });
const sequence = context.getSequence();
let bad = 0;
for (const line of fs.readFileSync(lines, "utf8").trim().split("\n")) {
  const want = JSON.parse(line);
  const text = `<|im_start|>user\n${want.prompt}<|im_end|>\n<|im_start|>assistant\n`;
  const asked = [...model.tokenize(text, true)];
  const same = JSON.stringify(asked) === JSON.stringify(want.prompt_ids);
  await sequence.clearHistory();
  const reply = [];
  for await (const token of sequence.evaluate(asked, { temperature: 0, yieldEogToken: true })) {
    reply.push(token);
    if (reply.length >= want.reply_ids.length) break;
  }
  let agree = 0;
  while (agree < reply.length && reply[agree] === want.reply_ids[agree]) agree++;
  if (!same || agree < Math.min(8, want.reply_ids.length)) bad++;
  console.log(`${same ? "same" : "DIFFERENT"} prompt ids (${asked.length}), ${agree}/${want.reply_ids.length} reply ids agree`);
  console.log(`  ${JSON.stringify(model.detokenize(reply))}`);
}
await model.dispose();
process.exit(bad ? 1 : 0);
