"""``python -m sfbench``: the same as the command ``sfbench``."""

from sfbench.cli.app import main

if __name__ == "__main__":
    main()
