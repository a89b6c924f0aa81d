"""Volume service: volumes and their snapshots. It stands in for Cinder.

``[volume] backend = local`` is the built-in service: volumes are raw files in a directory that all hosts share, their
metadata are rows of the conductor's database. ``[volume] backend = rbd`` is the same service with images in a Ceph.
``[volume] backend = cinder`` uses a real Cinder, and the volume API is not served.

Backend::

    volume/driver.py          port: VolumeBackend, which compute hosts call
    volume/builtin.py         parts that the backends of the built-in service share
    volume/local.py           backend ``local``
    volume/rbd.py             backend ``rbd``
    virt/rbd_pool.py          images in a pool of Ceph
    virt/rbd.py               program ``rbd``
    volume/cinder.py          backend ``cinder``: connects Cinder's volumes to a host
    volume/cinder_client.py   requests to Cinder, by the API and the conductor
    conf/volume.py            options ``[volume]``
    conf/cinder.py            options ``[cinder]``

API, with Cinder's v3 endpoints::

    api/volume/                         app, and a module for each kind of resource
    api/compute/volume_attachments.py   volumes of a server
    api/compute/volumes.py              ``/os-volumes`` of the compute API, until 2.35
    policies/volume_service.py          rules

Conductor::

    conductor/volume/                        RPC methods, work on files, and Cinder
    conductor/operations/volumes.py          attach, detach and swap
    conductor/operations/volume_sources.py   checks of the image, snapshot or volume that a volume is made from
    db/volume/                               SQL: volumes, attachments, types, keys, backups, block devices
    base/master_keys.py                      master keys, which wrap them
    objects/volume.py                        Volume, VolumeSnapshot, VolumeWork, VolumeConnection

Compute::

    compute/volumes.py                    work on volumes' files
    compute/user_volumes.py               requests to Cinder with a user's token, by the API
    compute/operations/volumes.py         attach, detach, swap and copy on the host
    virt/libvirt/disks/volumes.py         volumes in domains
    virt/libvirt/disks/volume_copies.py   copies of volumes that are in use
    virt/libvirt/disks/rbd_watchers.py    check that no other guest has a volume in RBD
    virt/libvirt/disks/secrets.py         passphrases of encrypted volumes in libvirt

Tests: ``tests/unit/volume``, ``tests/unit/api/volume``, ``tests/functional/test_volumes.py``,
``tests/functional/test_cinder.py``.
"""
