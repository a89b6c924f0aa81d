"""Sources of images and servers outside the cloud: distributors of cloud images, and Proxmox.

- `catalogue`: well-known cloud images, and where they are published
- `fetching`: downloads that continue after a break, and published checksums
"""
