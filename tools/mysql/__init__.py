"""Read-only MySQL behind a fail-closed gate."""
