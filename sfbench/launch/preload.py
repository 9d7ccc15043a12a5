"""Imported first by the fork server: it must not outlive the host process.

The server waits for the last writer of a pipe to close, and the ranks it forked are writers too. So
where the host is killed, neither would end without this.
"""

from __future__ import annotations

from sfbench.launch.prctl import die_with_parent

die_with_parent()
