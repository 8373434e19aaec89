// Vercel's AI SDK: node ai_sdk.mjs URL QUESTION → one line of JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText } from "ai";

const [baseURL, prompt] = process.argv.slice(2);
const apiKey = process.env.TOKEN ?? "any";

// The second turn sends the first one's answer back, by its id if the model's interface is Responses.
async function textOf(model) {
    const messages = [];
    const texts = [];
    for (const content of [prompt, "And then?"]) {
        let failure;
        messages.push({ role: "user", content });
        const result = streamText({ model, messages, onError: ({ error }) => (failure = error) });
        let text = "";
        for await (const piece of result.textStream) text += piece;
        if (failure) throw failure;
        messages.push(...(await result.response).messages);
        texts.push(text);
    }
    if (!texts[1]) throw new Error("the second turn has no text");
    return texts[0];
}

const compatible = await textOf(createOpenAICompatible({ name: "replyline", baseURL, apiKey })("replyline"));
const responses = await textOf(createOpenAI({ baseURL, apiKey })("replyline"));
console.log(JSON.stringify({ compatible, responses }));
