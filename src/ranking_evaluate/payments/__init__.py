"""Taking payments: the port, and one adapter per protocol."""
