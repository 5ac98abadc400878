"""``python -m gequiv`` is the command ``gequiv``."""

from gequiv.cli import main

if __name__ == "__main__":
    main()
