"""Image service: images of servers. It stands in for Glance.

``[image] backend = local`` is the built-in service: image data are files in one directory, metadata are rows of the
conductor's database. ``[image] backend = glance`` uses a real Glance, and the image API is not served.

Backend::

    image/driver.py          port: ImageBackend, which API, conductor and compute hosts call
    image/local.py           backend ``local``
    image/glance.py          backend ``glance``
    image/glance_client.py   requests to Glance
    image/remote.py          store of a controller, for hosts that joined with a token
    image/store.py           directory of image files
    image/formats.py         checks of image files before anything uses them
    image/qcow2.py           headers of qcow2 files
    image/luks.py            headers of encrypted disks and volumes
    image/vmdk.py            headers of VMDK files
    image/ova.py             disks in OVA archives
    image/verified.py        copies with checks of size and checksum
    image/download.py        downloads from hosts that the operator allows
    image/snapshots.py       metadata of images made from servers
    image/image_devices.py   block devices that an image names
    conf/image.py            options ``[image]``
    conf/glance.py           options ``[glance]``

API, with Glance's v2 endpoints::

    api/image/                  app, and a module for each kind of resource
    api/compute/images.py       ``/images`` of the compute API, until 2.35
    policies/image_service.py   rules
    cmd/manage/images.py        ``nova-lite-manage image``

Conductor::

    conductor/image/                   RPC methods
    conductor/engine/image_calls.py    calls to the backend during an action
    conductor/operations/snapshot.py   operations that make images
    db/image/                          SQL: images, members, metadata definitions
    objects/image.py                   Image, ImageMember
    objects/metadef.py                 MetadefNamespace

Compute::

    compute/image_caching.py            fetches images before builds need them
    compute/operations/snapshot.py      makes and uploads images of servers
    virt/images.py                      qemu-img
    virt/libvirt/disks/image_cache.py   image cache of the host

Further packages:

- `sources`: images and servers from outside the cloud

Tests: ``tests/unit/image``, ``tests/unit/api/image``, ``tests/functional/test_glance.py``.
"""
