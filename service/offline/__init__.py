"""The offline model: a deterministic chat model that follows runbooks; no language model, no key, no network."""
