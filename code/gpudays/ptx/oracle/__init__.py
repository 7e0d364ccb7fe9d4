"""Tracer, the oracle: a small interpreter in NumPy, to be read and to hold the compiled engine against."""
