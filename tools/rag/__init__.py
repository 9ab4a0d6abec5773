"""Runbook search over folders of Markdown and text, in English and Chinese."""
