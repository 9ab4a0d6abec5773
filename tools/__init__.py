"""Evidence tools: envelopes, scope, boundary, canonical store, and one folder per tool."""
