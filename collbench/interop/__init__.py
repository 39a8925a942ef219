"""Formats of other tools: what is written for them, and read back as they read it."""
