"""HTTP half of the volume service. `nova_lite.volume` lists the parts of the other daemons.

- `absent`: resources of Cinder that this cloud does not have
- `app`: the volume API: the part of Cinder's v3 API that clients use
- `attachments`: attachments of volumes: of the compute API, to read, and of other users of volumes
- `backends`: machines that do the work on volumes, for admins: services, hosts, pools and capabilities
- `backups`: full backups of volumes and snapshots
- `info`: limits of projects, extensions, filters of lists, and availability zones
- `listing`: queries of volume and snapshot lists: filters, sort order and pages
- `metadata`: metadata of volumes and snapshots
- `qos`: quality of service of volume types
- `requests`: validation of request bodies, and the types of their fields
- `resource`: base of the resources: lists, and the actions of one thing
- `snapshots`: snapshots of volumes, and their actions
- `transfers`: transfers of volumes to other projects: an offer has a key, and who has the key accepts it
- `types`: types of volumes: extra specs, encryption, projects that may use private ones, and defaults of projects
- `versions`: the document of versions, and the microversion of a request
- `views`: responses of the volume API in the form of Cinder's v3
- `volume_actions`: actions of volumes
- `volumes`: volumes, and the encryption of each
"""
