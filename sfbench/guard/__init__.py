"""Keeps the user's files as they are while a script runs that writes what it likes."""
