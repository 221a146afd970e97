"""Loads the classifier where outlast itself cannot be imported: in a hook's client, under `python -I -S`.
`outlast` and `outlast.agents` import msgspec; here they are empty stand-ins that only say where their files lie.
"""

import importlib
import os
import sys
import types


def load() -> types.ModuleType:
    """The module `outlast.agents.outward.classify`, without outlast. Only for a process that does not have outlast."""
    folder = os.path.dirname(os.path.abspath(__file__))
    agents = os.path.dirname(folder)
    for name, path in (("outlast", os.path.dirname(agents)), ("outlast.agents", agents)):
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = [path]
            sys.modules[name] = package
    return importlib.import_module("outlast.agents.outward.classify")
