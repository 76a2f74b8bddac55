"""What comes out of layers and models."""
