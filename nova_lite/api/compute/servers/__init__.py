"""``/servers``."""
