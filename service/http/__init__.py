"""The HTTP door: a FastAPI application over the run manager (R131, R132, R134)."""
