"""HTTP half of the load balancer service. `nova_lite.load_balancer` lists the parts of the other daemons.

- `app`: the load balancer API: the part of Octavia's v2 API that clients use
- `bodies`: bodies of requests, with the checks of their attributes
- `parts`: load balancers, listeners, pools, members and health monitors
- `certificates`: certificates of listeners, from secrets of the project
- `catalogue`: providers, flavors, and what this cloud does not have
- `quotas`: quotas of projects
- `views`: responses in Octavia's form
- `versions`: versions of the API, and their document
"""
