// Asks one question, as someone would who has read docs/protocol.md and RFC 6455 and nothing else:
//   node support/plain_client.mjs ws://127.0.0.1:8080/ws "Where is my order?"
// Prints each delta as it comes, and then the response as JSON. Node's own WebSocket comes with version 22 only.

import { createHash, randomBytes } from "node:crypto";
import { connect } from "node:net";

const [address, question] = process.argv.slice(2);
const { hostname, port, pathname } = new URL(address);
const socket = connect({ host: hostname, port: Number(port) });
const key = randomBytes(16).toString("base64");
let received = Buffer.alloc(0);
let upgraded = false;

const fail = (why) => {
  console.error(why);
  process.exit(1);
};

function send(message) {
  const payload = Buffer.from(JSON.stringify(message));
  const mask = randomBytes(4);
  const length = payload.length < 126 ? [0x80 | payload.length] : [0x80 | 126, payload.length >> 8, payload.length & 255];
  const masked = payload.map((byte, index) => byte ^ mask[index % 4]);
  socket.write(Buffer.concat([Buffer.from([0x81, ...length]), mask, masked]));
}

function onMessage(message) {
  if (message.type === "ping") send({ type: "pong" });
  else if (message.type === "error") fail(message.error.message);
  else if (message.type === "response.output_text.delta") console.log("delta", JSON.stringify(message.delta));
  else if (message.type === "response.done") {
    console.log("done", JSON.stringify(message.response));
    socket.end();
  }
}

function readHandshake() {
  const end = received.indexOf("\r\n\r\n");
  if (end < 0) return;
  const [status, ...headers] = received.subarray(0, end).toString().split("\r\n");
  const named = new Map(headers.map((line) => [line.split(": ")[0].toLowerCase(), line.split(": ")[1]]));
  const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  if (!status.includes(" 101 ") || named.get("sec-websocket-accept") !== accept) fail(status);
  if (named.get("sec-websocket-protocol") !== "chat.v1.json") fail("another subprotocol");
  received = received.subarray(end + 4);
  upgraded = true;
  send({ type: "session.start" });
  send({ type: "response.create", event_id: "question-1", input: question, max_output_tokens: 30 });
}

function readFrames() {
  while (received.length >= 2) {
    let [length, start] = [received[1] & 127, 2];
    if (length === 126 && received.length >= 4) [length, start] = [received.readUInt16BE(2), 4];
    else if (length === 127 && received.length >= 10) [length, start] = [Number(received.readBigUInt64BE(2)), 10];
    else if (length > 125) return;
    if (received.length < start + length) return;
    const opcode = received[0] & 15;
    if (opcode === 8) fail(`closed with ${received.readUInt16BE(start)}`);
    if (opcode === 1) onMessage(JSON.parse(received.subarray(start, start + length).toString()));
    received = received.subarray(start + length);
  }
}

socket.on("error", (error) => fail(error.message));
socket.on("data", (data) => {
  received = Buffer.concat([received, data]);
  if (!upgraded) readHandshake();
  if (upgraded) readFrames();
});
socket.write(
  `GET ${pathname} HTTP/1.1\r\nHost: ${hostname}:${port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
    `Sec-WebSocket-Key: ${key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat.v1.json\r\n\r\n`,
);
