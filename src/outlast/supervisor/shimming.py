"""For agents that were started when the shims' client still lay here, and are alive. It is `client/shim.py` now."""

import os
import sys

if __name__ == "__main__":
    client = os.path.join(os.path.dirname(os.path.realpath(__file__)), "client", "shim.py")
    os.execv(sys.executable, [sys.executable, "-I", "-S", client, *sys.argv[1:]])
