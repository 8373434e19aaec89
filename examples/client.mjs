// Asks one question and prints the answer as it comes, with replyline-client (`make packages`), in Node 22:
//
//   npm install dist/replyline-client-0.1.0.tgz
//   node examples/client.mjs "How long do refunds take?" ws://127.0.0.1:8080/ws
//
// Further addresses are of gateways that stand for the first: where one is lost, the answer goes on at the next.

import { ReplylineClient } from "replyline-client";

if (typeof WebSocket === "undefined") fail(`Node ${process.versions.node} has no WebSocket; use Node 22 or newer`);

const [question, ...url] = process.argv.slice(2);
const client = new ReplylineClient({ url });
let shown = "";
let tries = url.length;

client.on("state", ({ state }) => {
  if (state === "online") tries = Infinity;
  else if (state === "reconnecting" && --tries === 0) fail(`nobody answers at ${url}`);
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
