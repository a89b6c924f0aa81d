"""Entry points: one module per daemon and command line tool. Each chooses the concurrency mode first.

- `api`: ``nova-lite-api``: serves the REST APIs of ``[api] enabled_apis``
- `apply`: ``nova-lite apply``: brings a project of a cloud to what a file describes
- `compute`: ``nova-lite-compute``: runs the instances of one host
- `conductor`: ``nova-lite-conductor``: the only daemon that opens the database
- `dev`: ``nova-lite dev``: a throw-away cloud in one process
- `entry`: ``nova-lite``: its commands
- `fetch_disks`: rsync's remote shell for moves over TLS
- `manage`: ``nova-lite-manage``: tasks of operators besides the API
- `novncproxy`: ``nova-lite-novncproxy``: the pages of noVNC, and the screens of guests, over WebSockets
- `registrar`: ``nova-lite-registrar``: admits machines that join, and signs the list of trusted keys
- `scheduler`: ``nova-lite-scheduler``: chooses hosts for instances
- `send_disks`: ``nova-lite-send-disks``: sends disks to the destination of a move
- `serialproxy`: ``nova-lite-serialproxy``: the serial ports of guests, over WebSockets
- `setup`: ``nova-lite-setup``: makes a machine a controller or a host of a cloud, or removes it
- `spicehtml5proxy`: ``nova-lite-spicehtml5proxy``: the pages of spice-html5, and the screens of guests by SPICE
- `status`: ``nova-lite-status upgrade check``: whether this version can be upgraded to, or gone back to
"""
