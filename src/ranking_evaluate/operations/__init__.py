"""The operations on sale: one file each, listed in the registry."""
