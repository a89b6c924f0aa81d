"""Serialisers: typed values to the JSON of the request's microversion, one module per resource."""
