"""What stands around torch's functions while ranks run: taps, and what listens to them."""
