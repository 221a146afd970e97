"""`python -m outlast` is `outlast`."""

import sys

from outlast.cli.start import main

sys.exit(main())
