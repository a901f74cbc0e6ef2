"""What the service promises in writing: answers, error classes, the service contract and the reference."""
