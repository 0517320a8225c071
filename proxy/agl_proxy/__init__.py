"""The LLM proxy: pure ASGI middleware and the standalone app."""
