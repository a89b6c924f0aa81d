"""Sources of images and servers outside the cloud: distributors of cloud images, and Proxmox.

- `catalogue`: well-known cloud images, and where they are published
- `fetching`: downloads that continue after a break, and published checksums
- `proxmox`: guests of Proxmox, from its API or a backup
- `qcow2_file`: qcow2 files that are written in any order
- `vma`: backups of Proxmox
"""
