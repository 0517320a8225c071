"""The LLM proxy: passes model calls to an inference server and records their exact tokens as spans."""
