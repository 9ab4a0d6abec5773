"""Durable Runs, trace, agent steps and archive."""
