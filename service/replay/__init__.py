"""Run bundles: what a finished Run archived, as one file; replayed through the real graph, or asked what-if (R67, R154)."""
