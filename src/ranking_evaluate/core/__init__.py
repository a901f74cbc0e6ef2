"""The pure centre: bytes in, figures and digests out; no I/O, no clock, no randomness."""
