// Vercel's AI SDK: node ai_sdk.mjs URL QUESTION → one line of JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText } from "ai";

const [baseURL, prompt] = process.argv.slice(2);
const apiKey = process.env.TOKEN ?? "any";

async function textOf(model) {
    let failure;
    const result = streamText({ model, prompt, onError: ({ error }) => (failure = error) });
    let text = "";
    for await (const piece of result.textStream) text += piece;
    if (failure) throw failure;
    return text;
}

const compatible = await textOf(createOpenAICompatible({ name: "replyline", baseURL, apiKey })("replyline"));
const responses = await textOf(createOpenAI({ baseURL, apiKey })("replyline"));
console.log(JSON.stringify({ compatible, responses }));
