"""The breaks of what tells whose program it is that a call left running, and how long it is waited for."""

from tests.mutations.mutant import Mutant

BACKGROUND = "tests/supervisor/test_background_effects.py"
CALLS = "supervisor/agent/calls"

MUTANTS = (
    Mutant(
        "of two calls alike in the background, the first one settled by any program",
        f"{CALLS}/calls.py",
        "        if is_known:\n            return opened\n",
        "",
        (f"{BACKGROUND}::test_of_two_alike_in_the_background_the_later_one_may_end_before_the_first_begins",),
    ),
    Mutant(
        "a call settled by a process that is older than it is",
        f"{CALLS}/left_processes.py",
        "        return process[1] < int(since_s * self._ticks_per_s)\n",
        "        return False\n",
        (
            f"{BACKGROUND}::test_what_one_call_left_does_not_stand_for_another_call_that_was_killed_before_it_began",
        ),
    ),
    Mutant(
        "an agent that ended, and its transcript not read before it is decided whether to wait",
        "supervisor/attempt/watch.py",
        "        ended.look()  # the end of its last call may be in its transcript alone\n",
        "",
        (f"{BACKGROUND}::test_it_is_waited_for_also_where_only_the_transcript_tells_that_its_call_returned",),
    ),
    Mutant(
        "two runners at once, taken for one",
        f"{CALLS}/left_processes.py",
        "    return first is None or first != _first_below_us(other)\n",
        "    return True\n",
        (
            "tests/supervisor/test_shim_folder.py::test_a_runner_is_no_part_of_another_one_that_does_the_same_at_once",
        ),
    ),
    Mutant(
        "the processes above one, up to the first that has died",
        "processes/proc.py",
        "        found[-1] = again\n",
        "        break\n",
        (
            "tests/processes/test_proc.py::test_those_above_a_process_are_all_found_also_where_one_dies_meanwhile",
        ),
    ),
)
