"""LangChain's client: python langchain_chat.py URL QUESTION → one line of JSON."""

import json
import os
import sys

from langchain_openai import ChatOpenAI

url, question = sys.argv[1:]
key = os.environ.get("TOKEN", "any")
chat = ChatOpenAI(base_url=url, api_key=key, model="replyline")
responses = ChatOpenAI(base_url=url, api_key=key, model="replyline", use_responses_api=True)
sys.stdout.write(
    json.dumps(
        {
            "whole": chat.invoke(question).content,
            "chat": "".join(str(chunk.content) for chunk in chat.stream(question)),
            "responses": "".join(chunk.text for chunk in responses.stream(question)),
        }
    )
)
