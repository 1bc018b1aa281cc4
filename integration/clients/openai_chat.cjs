// The official OpenAI client for Node, unchanged: base URL and key come as arguments.
const assert = require("node:assert/strict");
const { OpenAI, AuthenticationError, NotFoundError, RateLimitError, UnprocessableEntityError } = require("openai");

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [
  { role: "system", content: "You are kind." },
  { role: "user", content: "Good morning!" },
];
const request = { model: "llm-chat", messages, max_tokens: 16, temperature: 0 };

/** The error that `ask` ends with: its class, status and code are what the client's users match on. */
async function refused(kind, status, code, ask) {
  const error = await ask().then(() => null, (error) => error);
  assert(error instanceof kind, `${code}: ${error}`);
  assert.deepEqual([error.status, error.code], [status, code]);
  return error;
}

async function whole() {
  const reply = await client.chat.completions.create(request);
  assert.equal(reply.object, "chat.completion");
  assert.equal(reply.choices[0].message.role, "assistant");
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
  return reply;
}

async function streamed(wanted) {
  const stream = await client.chat.completions.create({
    ...request,
    stream: true,
    stream_options: { include_usage: true },
  });
  let [text, usage, reason] = ["", null, null];
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    text += chunk.choices[0]?.delta.content ?? "";
    reason = chunk.choices[0]?.finish_reason ?? reason;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, wanted.choices[0].message.content);
  assert.equal(reason, wanted.choices[0].finish_reason);
  assert.deepEqual(usage, wanted.usage);
}

/** The client's own reading of a stream into a whole reply. */
async function accumulated(wanted) {
  const reply = await client.chat.completions.stream(request).finalChatCompletion();
  assert.equal(reply.choices[0].message.content, wanted.choices[0].message.content);
}

async function abandoned() {
  const { temperature, ...others } = request;
  const stream = await client.chat.completions.create({ ...others, model: "sim-chat", max_tokens: 500, stream: true });
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content) break;
  }
}

async function held() {
  const schema = {
    type: "object",
    properties: { mood: { enum: ["good", "bad"] } },
    required: ["mood"],
    additionalProperties: false,
  };
  const reply = await client.chat.completions.create({
    ...request,
    max_tokens: 32,
    response_format: { type: "json_schema", json_schema: { name: "mood", schema } },
  });
  assert(["good", "bad"].includes(JSON.parse(reply.choices[0].message.content).mood), JSON.stringify(reply));
}

async function calls() {
  const parameters = { type: "object", properties: { place: { enum: ["village", "town"] } }, required: ["place"] };
  const asked = {
    ...request,
    max_tokens: 64,
    tools: [{ type: "function", function: { name: "weather", parameters } }],
    tool_choice: "required",
  };
  const reply = await client.chat.completions.create(asked);
  const [call] = reply.choices[0].message.tool_calls;
  assert.equal(reply.choices[0].finish_reason, "tool_calls");
  assert.equal(call.function.name, "weather");
  assert(["village", "town"].includes(JSON.parse(call.function.arguments).place));
  const streamed = await client.chat.completions.stream(asked).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
}

async function models() {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert(ids.includes("llm-chat"), ids.join());
  assert.equal((await client.models.retrieve("llm-chat")).object, "model");
}

async function errors() {
  const wrong = new OpenAI({ baseURL, apiKey: "ak_wrong", maxRetries: 0 });
  await refused(AuthenticationError, 401, "invalid_api_key", async () => wrong.models.list());
  await refused(NotFoundError, 404, "workload_not_found", async () => client.models.retrieve("no-such-model"));
  const hot = async () => client.chat.completions.create({ ...request, temperature: 3 });
  const error = await refused(UnprocessableEntityError, 422, "validation_error", hot);
  assert.equal(error.param, "temperature");
  const often = () => Promise.all(Array.from({ length: 150 }, () => client.models.list()));
  const limited = await refused(RateLimitError, 429, "rate_limited", often);
  assert(Number(limited.headers.get("retry-after")) >= 1);
}

async function main() {
  const reply = await whole();
  await streamed(reply);
  await accumulated(reply);
  await abandoned();
  await held();
  await calls();
  assert.notEqual((await client.chat.completions.create({ ...request, model: "no-such-model" })).model, "no-such-model");
  await models();
  await errors();
  console.log("ok");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
