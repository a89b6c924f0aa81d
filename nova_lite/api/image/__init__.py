"""HTTP half of the image service. `nova_lite.image` lists the parts of the other daemons.

- `app`: the image API: the part of Glance's v2 API that clients need
- `imports`: imports of image data, which is staged first or loaded from an allowed host
- `listing`: filters, sort order and pages of image lists
- `metadef_schemas`: JSON schemas of metadata definitions, as Glance has them at ``/v2/schemas/metadefs``
- `metadefs`: metadata definitions: namespaces with objects, properties, tags
- `pieces`: staging in pieces, which continues after a lost connection
- `requests`: validation of requests that create or change an image
- `uploads`: uploads of image data, which arrive piece by piece
- `versions`: versions of the API, and their document
- `views`: responses of the image API in the form of Glance's v2: fields and properties in one object
"""
