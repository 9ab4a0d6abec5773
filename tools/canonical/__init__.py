"""Stores of canonical invocation records, the only source of truth about a tool call (R48)."""
