"""A gate's report as text for people, build servers and pull requests."""
