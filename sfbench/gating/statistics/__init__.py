"""When a comparison is decided, and how well a machine can decide. Pure."""
