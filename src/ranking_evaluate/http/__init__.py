"""The HTTP side: FastAPI lives here and nowhere else."""
