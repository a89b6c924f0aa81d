"""The metadata API: what guests ask about themselves at 169.254.169.254."""
