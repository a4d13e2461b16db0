// The AI SDK through its three providers: chat, Responses and Anthropic's Messages; whole, streamed, and with a tool.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

import { QUESTION, RESULT, WEATHER, startServer } from "./server.mjs";

const MODEL = "hermitcrab-builtin";
const ASK = "Count from 1 to 5.";

let server;
let models;

before(async () => {
  server = await startServer();
  const place = { baseURL: `${server.address}/v1`, apiKey: "none" };
  models = {
    chat: createOpenAICompatible({ ...place, name: "hermitcrab", includeUsage: true })(MODEL),
    responses: createOpenAI(place).responses(MODEL),
    messages: createAnthropic(place)(MODEL),
  };
});
after(async () => {
  assert.equal(await server.stop(), 0);
});

// each provider has its own way to say that there is no need to think
const PLAIN = {
  chat: { providerOptions: { hermitcrab: { reasoningEffort: "none" } } },
  responses: { providerOptions: { openai: { reasoningEffort: "none", forceReasoning: true } } },
  messages: {},
};

for (const dialect of ["chat", "responses", "messages"]) {
  const asked = (fields) => ({
    model: models[dialect],
    maxOutputTokens: 150,
    maxRetries: 0,
    ...PLAIN[dialect],
    ...fields,
  });

  test(`${dialect}: a streamed text adds up to the whole one, with its usage`, async () => {
    const whole = await generateText(asked({ prompt: ASK }));
    assert.notEqual(whole.text, "");
    const stream = streamText(asked({ prompt: ASK }));
    let said = "";
    for await (const part of stream.textStream) said += part;
    assert.notEqual(said, "");
    assert.ok((await stream.usage).outputTokens > 0);
    assert.equal((await stream.usage).inputTokens, whole.usage.inputTokens);
  });

  for (const isStreamed of [false, true]) {
    test(`${dialect}: a tool is called and its result answered, ${isStreamed ? "streamed" : "whole"}`, async () => {
      const tools = {
        get_weather: tool({
          description: WEATHER.description,
          inputSchema: jsonSchema(WEATHER.parameters),
          execute: async () => JSON.parse(RESULT),
        }),
      };
      const fields = asked({
        prompt: QUESTION,
        tools,
        stopWhen: stepCountIs(2),
        prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
      });
      const reply = isStreamed ? streamText(fields) : await generateText(fields);
      const steps = await reply.steps;
      assert.deepEqual(
        steps[0].toolCalls.map((call) => [call.toolName, Object.keys(call.input)]),
        [["get_weather", ["city"]]],
      );
      assert.equal(steps.length, 2);
      assert.notEqual(await reply.text, "");
    });
  }
}
