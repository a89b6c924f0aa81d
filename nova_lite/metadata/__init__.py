"""What a guest is told of itself: the same documents on its config drive and from the metadata service."""
