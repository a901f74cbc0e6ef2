"""The server: uvicorn with bounded connections. It serves any ASGI application and knows nothing of ours."""
