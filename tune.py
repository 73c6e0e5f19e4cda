"""``python tune.py model.py``: the same as ``autotune tune model.py``."""

import sys

from autotune.__main__ import main

if __name__ == "__main__":
    main(["tune", *sys.argv[1:]])
