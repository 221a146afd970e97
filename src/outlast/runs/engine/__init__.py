"""The parts of an open run, and the drivers of its generators. The API that users call is in `runs/run.py` and `runs/beat.py`."""
