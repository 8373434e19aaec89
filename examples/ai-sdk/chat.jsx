// A chat by the AI SDK's useChat. A reload resumes the answer that runs; Stop ends it at the gateway too.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import { useEffect } from "react";
import { createRoot } from "react-dom/client";

const api = import.meta.env.AI_SDK_URL;
const id = (sessionStorage.chat ??= crypto.randomUUID());
const earlier = JSON.parse(sessionStorage.messages ?? "[]");
const transport = new DefaultChatTransport({ api });

function Chat() {
  const { messages, sendMessage, status, stop, error } = useChat({ id, messages: earlier, resume: true, transport });
  const isBusy = status === "submitted" || status === "streaming";

  useEffect(() => {
    sessionStorage.messages = JSON.stringify(messages);
  }, [messages]);

  function ask(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    sendMessage({ text: form.get("question") });
    event.target.reset();
  }

  // useChat's own stop closes the stream; only the gateway can tell that from a lost connection.
  async function stopAnswer() {
    await Promise.all([stop(), fetch(`${api}/${id}/stop`, { method: "POST" })]);
  }

  return (
    <main>
      {messages.map((message) => (
        <Message key={message.id} {...message} />
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={ask}>
        <input name="question" aria-label="Your question" required autoFocus />
        {isBusy ? (
          <button type="button" onClick={stopAnswer}>
            Stop
          </button>
        ) : (
          <button>Ask</button>
        )}
      </form>
    </main>
  );
}

function Message({ role, parts, metadata }) {
  const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("");
  const entries = parts.filter((part) => part.type === "source-document");
  return (
    <article aria-label={role === "user" ? "Question" : "Answer"}>
      {text}
      {metadata && <small>From: {metadata.source}</small>}
      {entries.map((entry) => (
        <small key={entry.sourceId}>Based on: {entry.title}</small>
      ))}
    </article>
  );
}

createRoot(document.getElementById("chat")).render(<Chat />);
