"""One module a version, in order. A version that was released never changes."""
