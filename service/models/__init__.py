"""Models behind `ModelClient`: the OpenAI-compatible adapter, provider profiles, the factory of configured names."""
