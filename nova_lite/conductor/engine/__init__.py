"""The engine: drives every accepted action from its row to its end, and undoes what failed.

It knows no operation by name.
"""
