// A server on the built-in model for a test file: started once, ended with it.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const PROGRAM = process.env.HERMITCRAB ?? "../../.venv/bin/hermitcrab";
const OPTIONS = ["serve", "--port", "0", "--context", "2048", "--parallel", "2", "--threads", "1"];

/** Starts the server; resolves to its address and to what ends it. */
export async function startServer() {
  const child = spawn(PROGRAM, OPTIONS, { stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const said = [];
  for await (const line of createInterface({ input: child.stderr })) {
    said.push(line);
    const address = /^try: .*?(http:\/\/[^/]+)\/v1\//.exec(line);
    if (address !== null) {
      child.stderr.resume();
      return {
        address: address[1],
        stop: async () => {
          child.kill("SIGTERM");
          return await ended;
        },
      };
    }
  }
  throw new Error(`the server did not start:\n${said.join("\n")}`);
}

export const WEATHER = {
  name: "get_weather",
  description: "Get the current weather of a city.",
  parameters: {
    type: "object",
    properties: { city: { type: "string", description: "The city." } },
    required: ["city"],
  },
};
export const QUESTION = "What is the weather in Paris?";
export const RESULT = '{"temperature": 21, "sky": "sunny"}';
