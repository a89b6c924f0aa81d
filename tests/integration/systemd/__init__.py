"""The units, under a real systemd: what each sandbox lets its daemon do, and what becomes of a daemon that hangs."""
