"""Asks one question, like a user who has read only docs/protocol.md: plain_client.py URL QUESTION

Prints each delta as it comes, and then the response as JSON.
"""

import json
import sys

from websockets.sync.client import connect


def say(name: str, value: object) -> None:
    sys.stdout.write(f"{name} {json.dumps(value)}\n")
    sys.stdout.flush()


def main(url: str, question: str) -> None:
    with connect(url, subprotocols=["chat.v1.json"]) as socket:

        def send(message: dict) -> None:
            socket.send(json.dumps(message))

        send({"type": "session.start"})
        send({"type": "response.create", "event_id": "question-1", "input": question, "max_output_tokens": 30})
        for data in socket:
            message = json.loads(data)
            if message["type"] == "ping":
                send({"type": "pong"})
            elif message["type"] == "response.output_text.delta":
                say("delta", message["delta"])
            elif message["type"] == "response.done":
                say("done", message["response"])
                return
            elif message["type"] == "error":
                sys.exit(message["error"]["message"])


main(*sys.argv[1:])
