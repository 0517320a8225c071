"""Processes that do work: runner, aggregator, watchdog."""
