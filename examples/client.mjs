// Ask one question and print the answer as it comes, with replyline-client (`make packages`), in Node 22:
//
//   npm install dist/replyline-client-0.1.0.tgz
//   node examples/client.mjs "How long do refunds take?" ws://127.0.0.1:8080/ws
//
// Give further addresses of interchangeable gateways: if one is lost, the answer continues at the next.

import { ReplylineClient } from "replyline-client";

if (typeof WebSocket === "undefined") fail(`Node ${process.versions.node} has no WebSocket; use Node 22 or newer`);

const [question, ...url] = process.argv.slice(2);
if (!question || !url.length) fail('usage: node client.mjs "QUESTION" ws://HOST:PORT/ws [ws://OTHER:PORT/ws ...]');
const client = new ReplylineClient({ url });
let shown = "";
let tries = url.length;

client.on("state", ({ state }) => {
  if (state === "online") tries = Infinity;
  else if (state === "reconnecting" && --tries === 0) fail(`no gateway answers at ${url}`);
});
client.on("delta", ({ text }) => {
  process.stdout.write(text.startsWith(shown) ? text.slice(shown.length) : `\n${text}`);
  shown = text;
});
client.on("done", ({ response: { status, source } }) => {
  console.log(`\n${status} from ${source}`);
  client.close();
});
client.on("error", ({ error }) => fail(error.message));
client.connect();
client.create(question);

function fail(why) {
  console.error(why);
  process.exit(1);
}
