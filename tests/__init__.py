"""Tests. This file keeps `tests/` from shadowing the packages it tests."""
