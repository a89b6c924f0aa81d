"""Consoles of guests in a browser: their tokens, and the proxies that open them."""
