"""Scripts that remove from the schema what older code needs: ``nova-lite-manage db contract`` runs them.

A script has a docstring, ``serves_from``, which is the newest migration of the oldest code that runs without what the
script removes, and ``upgrade()``. It has to bear being run again after an interruption. No two scripts have the same
``serves_from``.
"""
