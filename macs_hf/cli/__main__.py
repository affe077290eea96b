"""`python -m macs_hf.cli`, for where the script `macs-hf` is not on the path."""

import sys

from .main import main


if __name__ == "__main__":
    sys.exit(main())
