"""The rungs that load nothing or run apart: batches handed out again, weights put back."""
