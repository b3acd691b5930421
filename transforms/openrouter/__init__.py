"""The service: what is sent, what comes back, what is kept of it. No Beam."""
