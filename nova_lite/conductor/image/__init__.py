"""The conductor's part of the image service.

- `endpoints`: RPC methods about images that also change files, or whose result depends on the caller
"""
