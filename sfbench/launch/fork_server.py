"""Imported by the fork server, and by nothing else: what the server does before its first fork.

It must not outlive the host process: it waits for the last writer of a pipe to close, and the ranks
that it forked are writers too. So if the host is killed, neither would end by itself.
"""

from __future__ import annotations

from sfbench.launch import preload
from sfbench.launch.prctl import die_with_parent

die_with_parent()
preload.load()
