"""Benchmarks: every claim of speed as a ratio against the raw engine, or a peer, measured in the same run."""
