"""From what the hooks tell to the training loop: found, checked, counted step by step."""
