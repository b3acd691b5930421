"""Data only: profiles of models and deployment templates, installed with the code."""
