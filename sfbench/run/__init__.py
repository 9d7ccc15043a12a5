"""A sweep, and the checks, as a stage: all stages before it in one call."""
