"""Connectors of the small os-brick."""
