"""What ranks and their launcher share. Standard library only (and numpy for the heartbeat)."""
