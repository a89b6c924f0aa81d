"""DNS service (`nova_lite.dns`).

- `wing`: methods of users, and the transfer to the name server
"""
