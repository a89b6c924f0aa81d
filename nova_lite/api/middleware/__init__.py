"""Filters of the paste pipelines, outermost first: cors, proxy headers, request id, fault wrap, size limit, auth."""
