"""Gate: is the candidate slower than the base, measured side by side on this machine?"""
