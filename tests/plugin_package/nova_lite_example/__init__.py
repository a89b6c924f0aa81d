"""Plugins for a scheduler and an API."""
