"""Records <-> bytes: what is written, in the names that others rely on. No Beam."""
