// Pages of the AI SDK's own client: `node --experimental-websocket ai_sdk_pages.mjs NODE_MODULES`. A line of JSON in
// for each request: {page, url, transport, chat, ask | resume, stopAt}. Lines out: {page, chars} as its text grows, and
// {page, status, error, message} at its end.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const modules = pathToFileURL(`${process.argv[2]}/`);
const { Chat } = await import(new URL("@ai-sdk/react/dist/index.js", modules));
const { DefaultChatTransport, WebSocketChatTransport } = await import(new URL("ai/dist/index.js", modules));

const say = (line) => console.log(JSON.stringify(line));
const textOf = (message) =>
  (message?.role === "assistant" ? message.parts : []).map((part) => part.text ?? "").join("");
const messages = {}; // what a page remembers of its chat

async function request({ page, url, transport, chat: id, ask, stopAt = Infinity }) {
  const isSocket = transport === "websocket";
  const chat = new Chat({
    id,
    messages: messages[id],
    transport: isSocket ? new WebSocketChatTransport({ url }) : new DefaultChatTransport({ api: url }),
    onError: () => {},
  });
  let chars = 0;
  chat["~registerMessagesCallback"](() => {
    messages[id] = chat.messages;
    if (chars === textOf(chat.lastMessage).length) return;
    chars = textOf(chat.lastMessage).length;
    say({ page, chars });
    if (chars < stopAt) return;
    stopAt = Infinity;
    if (isSocket) chat.stop();
    else fetch(`${url}/${id}/stop`, { method: "POST" });
  });
  await (ask === undefined ? chat.resumeStream() : chat.sendMessage({ text: ask }));
  const { status, error, lastMessage } = chat;
  const message = lastMessage?.role === "assistant" ? lastMessage : undefined;
  say({ page, status, error: error?.message, message, text: textOf(message) });
  await chat.dispose();
}

for await (const line of createInterface({ input: process.stdin })) request(JSON.parse(line));
