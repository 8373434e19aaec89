// useChat's transports without React: node ai_sdk_chat.mjs URL QUESTION → one line of JSON.
import { randomUUID } from "node:crypto";
import { DefaultChatTransport, readUIMessageStream, WebSocketChatTransport } from "ai";
import WebSocket from "ws";

const [url, question] = process.argv.slice(2);
const headers = process.env.TOKEN ? { Authorization: `Bearer ${process.env.TOKEN}` } : {};

async function textOf(transport) {
    const messages = [{ id: "m1", role: "user", parts: [{ type: "text", text: question }] }];
    const stream = await transport.sendMessages({ chatId: randomUUID(), messages, trigger: "submit-message" });
    let text = "";
    for await (const message of readUIMessageStream({ stream })) {
        text = message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
    }
    return text;
}

const sse = await textOf(new DefaultChatTransport({ api: `${url}/chat`, headers }));
const sockets = new WebSocketChatTransport({ url: `${url}/chat`, headers, webSocket: WebSocket });
const websocket = await textOf(sockets);
sockets.close();
console.log(JSON.stringify({ sse, websocket }));
