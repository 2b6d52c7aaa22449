"""Every request of the API, noun by noun, as a plan."""
