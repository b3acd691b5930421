"""A stand-in for OpenRouter that knows which ids were sampled: `python -m simulator --port 0`.

It speaks the wire format on 127.0.0.1 and imports nothing of what it judges.
"""
