// Asks one question over the WebSocket and prints the answer as it comes. Node 22, no package:
//
//   node examples/client.mjs ws://127.0.0.1:8080/ws "How long do refunds take?"
//
// Node 20.10 and newer have the same WebSocket behind `--experimental-websocket`.

const [url = "ws://127.0.0.1:8080/ws", question = "How long do refunds take?"] = process.argv.slice(2);
const socket = new WebSocket(url, "chat.v1.json");
const send = (message) => socket.send(JSON.stringify(message));

socket.onopen = () => {
  send({ type: "session.start" });
  send({ type: "response.create", event_id: crypto.randomUUID(), input: question });
};

socket.onmessage = ({ data }) => {
  const message = JSON.parse(data);
  if (message.type === "ping") send({ type: "pong" });
  if (message.type === "response.output_text.delta") process.stdout.write(message.delta);
  if (message.type === "error") fail(message.error.message);
  if (message.type === "response.done") {
    const { status, source, timings } = message.response;
    console.log(`\n${status} from ${source}, first text after ${Math.round(timings.ttft_ms)} ms`);
    socket.close();
  }
};

socket.onerror = () => fail(`nobody answers at ${url}`);

function fail(why) {
  console.error(why);
  process.exit(1);
}
