"""The process of one subject: python -P subject.py NAME DUTY FOLDER POSTGRES_URL PAGE_BYTES NUMBER.

Duties: `laps` (time slices of the subject's steps), `die` (resume, report the first new step, die by SIGKILL),
`races` (many runs at once). A subject is a module of benchmarks.subjects; NAME may name another of its step
functions after a dot, such as outlast.act_steps.
"""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.measure import Channel, FirstThenDie, Laps, Place


def main() -> None:
    name, duty, folder, postgres_url, page_bytes, number = sys.argv[1:]
    place = Place(folder, postgres_url, int(page_bytes))
    channel = Channel()
    module_name, _, function = name.partition(".")
    module = import_module(f"benchmarks.subjects.{module_name}")
    if duty == "races":
        from benchmarks.race import races

        module.race_all(place, races(channel, int(number)))
        return
    clock = Laps(channel, int(number)) if duty == "laps" else FirstThenDie(channel, int(number))
    getattr(module, function or "steps")(place, clock.lap)


if __name__ == "__main__":
    main()
