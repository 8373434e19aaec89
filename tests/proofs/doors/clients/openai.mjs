// openai's own client in Node: node openai.mjs URL QUESTION → one line of JSON.
import OpenAI from "openai";

const [baseURL, question] = process.argv.slice(2);
const apiKey = process.env.TOKEN ?? "any";
const client = new OpenAI({ baseURL, apiKey });
const messages = [{ role: "user", content: question }];

const whole = await client.chat.completions.create({ model: "replyline", messages });
let chat = "";
for await (const chunk of await client.chat.completions.create({ model: "replyline", messages, stream: true })) {
    chat += chunk.choices[0]?.delta.content ?? "";
}
let responses = "";
for await (const event of await client.responses.create({ model: "replyline", input: question, stream: true })) {
    if (event.type === "response.output_text.delta") responses += event.delta;
}
console.log(JSON.stringify({ whole: whole.choices[0].message.content, chat, responses }));
