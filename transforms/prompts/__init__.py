"""Prompt files as they are in the wild -> Prompt. No Beam."""
