"""HTTP half of the DNS service. `nova_lite.dns` lists the parts of the other daemons.

- `app`: the application
- `resource`: base class of the resources, and lists
- `zones`, `recordsets`: zones and their record sets
- `reverse`: names of the addresses of floating addresses
- `quotas`: quotas and limits
- `versions`: the document of versions
- `views`: documents in Designate's form
"""
