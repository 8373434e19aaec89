"""Another server's model as a worker's engine: any server that streams OpenAI's chat completions.

    choice (which upstream, its breaker) → body → client (HTTP) → events (bytes to pieces of text)

An upstream computes text, not tokens in steps: it implements no `workers.engine.Engine` (docs/decisions/0029). What
decides here is pure; `client.py` alone speaks HTTP.
"""
