"""``python -m fedbr``."""

from .cli import main

main()
