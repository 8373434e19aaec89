"""Ask one question and print the answer as it comes, with replyline_client (`make packages`):

    pip install dist/replyline_client-0.1.0-py3-none-any.whl
    python examples/ask.py "How long do refunds take?" ws://127.0.0.1:8080/ws

Give further addresses of interchangeable gateways: if one is lost, the answer continues at the next.
"""

import sys

from replyline_client import Replyline, ReplylineError, ResponseCreated, ResponseDelta, ResponseDone


def main(question: str, *gateways: str) -> None:
    with Replyline(*gateways) as client:
        for event in client.ask(question):
            match event:
                case ResponseCreated():  # a second one says that the text comes otherwise, from its beginning
                    print()
                case ResponseDelta():
                    print(event.delta, end="", flush=True)
                case ResponseDone():
                    print(f"\n{event.response.status} from {event.response.source}")


if not sys.argv[2:]:
    sys.exit('usage: python ask.py "QUESTION" ws://HOST:PORT/ws [ws://OTHER:PORT/ws ...]')
try:
    main(*sys.argv[1:])
except ReplylineError as error:
    sys.exit(str(error))
