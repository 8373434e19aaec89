"""Another server's model as a worker's engine: any server that streams OpenAI chat completions.

    choice (which upstream, its breaker) → body → client (HTTP) → events (bytes to pieces of text)

An upstream returns text, not tokens in steps, so it does not implement `workers.engine.Engine` (docs/decisions/0029).
Decisions are pure; only `client.py` uses HTTP.
"""
