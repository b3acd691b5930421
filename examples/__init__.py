"""Example prompts, and the demonstration that `make demo` runs."""
