"""Foundations that every room may import: errors, files, batching, concurrency, memory, metrics, failpoints.

Nothing here imports another room of nova_lite.
"""
