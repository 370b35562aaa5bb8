"""Speculative decoding: the algorithm, in numpy and the standard library."""
