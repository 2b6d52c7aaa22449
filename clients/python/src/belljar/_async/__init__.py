"""The client that is awaited."""
