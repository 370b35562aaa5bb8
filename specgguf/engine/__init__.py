"""A target and its drafters, ready to generate."""
