"""Users, projects and tokens of a cloud without Keystone, and the part of Keystone's v3 API that clients need."""
