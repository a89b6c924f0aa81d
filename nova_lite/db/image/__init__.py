"""Images of the built-in backend. Their bytes are files.

- `images`: metadata of images
- `image_members`: projects that an image is shared with
- `host_images`: access of a compute host to the images that it uploads
- `metadefs`: metadata definitions
"""
