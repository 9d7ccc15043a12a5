"""``python -m sfbench.launch DESCRIPTOR``: the host process. Started by ``LocalLauncher`` only."""

from __future__ import annotations

import os
import sys

from sfbench.launch.host import main

if __name__ == "__main__":
    if sys.version_info < (3, 11):
        del sys.path[0]  # the current folder; newer versions are started with -P
    # At once: torch's threads may abort an interpreter that takes itself apart.
    os._exit(main())
