"""Remedies tried and measured: candidates from diagnoses, rounds of launches, the best set."""
