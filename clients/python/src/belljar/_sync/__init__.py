# Generated from ../_async/__init__.py by generate_sync.py. Do not edit.
"""A client of the REST API."""
