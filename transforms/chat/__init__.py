"""Chat formats: what a model samples, and how its text becomes ids again. No Beam."""
