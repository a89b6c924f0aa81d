"""HTTP half of the image service. `nova_lite.image` lists the parts of the other daemons.

- `app`: the image API: the part of Glance's v2 API that clients need
- `data`: data of images: uploads, staged data, and downloads
- `images`: lists, fields, properties, tags and members of images
- `imports`: imports of image data, which is staged first or loaded from an allowed host
- `info`: stores, the use of the quota, schemas, and tasks, of which there are none
- `listing`: filters, sort order and pages of image lists
- `metadef_schemas`: JSON schemas of metadata definitions, as Glance has them at ``/v2/schemas/metadefs``
- `metadefs`: metadata definitions: namespaces with objects, properties, tags
- `pieces`: staging in pieces, which continues after a lost connection
- `requests`: validation of requests that create or change an image
- `resource`: base of the resources
- `uploads`: uploads of image data, which arrive piece by piece
- `versions`: versions of the API, and their document
- `views`: responses of the image API in the form of Glance's v2: fields and properties in one object
"""
