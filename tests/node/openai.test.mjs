// openai-node: what it parses is what was said, whole and streamed, in both of OpenAI's dialects.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import OpenAI from "openai";

import { QUESTION, RESULT, WEATHER, startServer } from "./server.mjs";

const TOOLS = [{ type: "function", function: WEATHER }];
const PLAIN = { model: "hermitcrab-builtin", temperature: 0, reasoning_effort: "none", max_tokens: 150 };
const ASK = [{ role: "user", content: "Count from 1 to 5." }];

let server;
let client;

before(async () => {
  server = await startServer();
  client = new OpenAI({ baseURL: `${server.address}/v1`, apiKey: "none", maxRetries: 0 });
});
after(async () => {
  assert.equal(await server.stop(), 0);
});

test("a streamed chat adds up to the whole one, with its usage", async () => {
  const whole = await client.chat.completions.create({ ...PLAIN, messages: ASK });
  const stream = await client.chat.completions.create({
    ...PLAIN,
    messages: ASK,
    stream: true,
    stream_options: { include_usage: true },
  });
  let said = "";
  let usage = null;
  for await (const chunk of stream) {
    said += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.notEqual(said, "");
  assert.equal(said, whole.choices[0].message.content);
  assert.deepEqual(usage, whole.usage);
});

test("thinking and answer come apart", async () => {
  const fields = { ...PLAIN, reasoning_effort: "low", max_tokens: 300 };
  const { message } = (await client.chat.completions.create({ ...fields, messages: ASK })).choices[0];
  assert.ok(message.reasoning_content.length > 0);
  assert.ok(!message.content.includes("</think>"));
});

for (const tool_choice of ["auto", "required", { type: "function", function: { name: "get_weather" } }]) {
  test(`a tool loop goes round with ${JSON.stringify(tool_choice)}`, async () => {
    const messages = [{ role: "user", content: QUESTION }];
    const fields = { ...PLAIN, tools: TOOLS };
    const stream = client.chat.completions.stream({ ...fields, messages, tool_choice });
    const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
    assert.equal(finish_reason, "tool_calls");
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "Paris" });
    messages.push(message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: RESULT });
    const answer = await client.chat.completions.create({ ...fields, messages });
    assert.match(answer.choices[0].message.content, /sunny/);
  });
}

test("a streamed response adds up to the whole one, and can be read again", async () => {
  const fields = { model: PLAIN.model, temperature: 0, reasoning: { effort: "none" }, input: ASK };
  const whole = await client.responses.create(fields);
  const stream = client.responses.stream(fields);
  const kinds = new Set();
  for await (const event of stream) kinds.add(event.type);
  const streamed = await stream.finalResponse();
  assert.ok(kinds.has("response.output_text.delta"));
  assert.equal(streamed.output_text, whole.output_text);
  assert.deepEqual((await client.responses.retrieve(whole.id)).output, whole.output);
});

test("a wrong request raises the client's own error, with the field", async () => {
  await assert.rejects(
    client.chat.completions.create({ ...PLAIN, messages: ASK, top_logprobs: 2 }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "top_logprobs",
  );
});

test("a stream left early ends its request", async () => {
  const stream = await client.chat.completions.create({
    ...PLAIN,
    messages: ASK,
    max_tokens: 1500,
    ignore_eos: true,
    stream: true,
  });
  for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
  let status;
  do {
    status = await (await fetch(`${server.address}/v1/status`)).json();
  } while (status.streams.length > 0);
  assert.equal(status.requests_cancelled, 1);
});
