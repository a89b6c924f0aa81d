"""Hosts that join with a token, from the request to the list of keys: API, conductor, registrar and client."""
