"""Every request of the API as a plan, one module for each kind of object."""
