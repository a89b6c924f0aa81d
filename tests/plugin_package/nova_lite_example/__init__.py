"""Plugins for a scheduler."""
