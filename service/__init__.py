"""The doors: command line, run store, settings, models."""
