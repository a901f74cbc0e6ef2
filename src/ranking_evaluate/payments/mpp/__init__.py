"""Payments over MPP: Tempo charges in pull mode; this package is the service's only importer of the mpp SDK."""
