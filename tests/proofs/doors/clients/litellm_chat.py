"""LiteLLM as a library: python litellm_chat.py URL QUESTION → one line of JSON."""

import json
import os
import sys

import litellm

url, question = sys.argv[1:]
key = os.environ.get("TOKEN", "any")
messages = [{"role": "user", "content": question}]
whole = litellm.completion(model="openai/replyline", api_base=url, api_key=key, messages=messages)
chunks = litellm.completion(model="openai/replyline", api_base=url, api_key=key, messages=messages, stream=True)
chat = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
sys.stdout.write(json.dumps({"whole": whole.choices[0].message.content, "chat": chat}))
