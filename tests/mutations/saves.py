"""The breaks of what a save reads: files that are in the middle of a write."""

from tests.mutations.mutant import Mutant

LONG = "tests/workspace/test_long_writes.py"
MIDDLE = f"{LONG}::test_a_file_read_in_the_middle_of_a_write_is_read_again"

MUTANTS = (
    Mutant(
        "a file is never read again for its youth",
        "workspace/capture/stat_cache.py",
        "since_ns if self._is_young(file_stat, at, since_ns) else 0",
        "0",
        (MIDDLE,),
    ),
    Mutant(
        "a save with hints alone does not read the young again",
        "workspace/capture/save.py",
        "            paths = paths.union(young_files(memory))\n",
        "",
        (MIDDLE,),
    ),
    Mutant(
        "a young secret is not read again",
        "workspace/capture/special/secrets.py",
        "    if not known.young_ns:\n        return True\n",
        "    if known.size >= 0:\n        return True\n",
        (MIDDLE,),
    ),
    Mutant(
        "the young are taken into the private index",
        "workspace/capture/refresh_index.py",
        "for path, known in area.settled().items()}",
        "for path, known in area.entries.items()}",
        (f"{LONG}::test_the_private_index_is_not_told_of_young_files",),
    ),
    Mutant(
        "what git notes while it refreshes the private index is trusted at once",
        "workspace/capture/private_index.py",
        "        self._distrust(index)\n",
        "",
        (f"{LONG}::test_a_write_that_begins_before_the_index_is_refreshed_is_found",),
    ),
    Mutant(
        "what git notes at the first save is trusted at once",
        "workspace/capture/private_index.py",
        "        self._distrust(self.index)\n",
        "",
        (f"{LONG}::test_a_write_that_begins_before_the_first_save_is_found",),
    ),
    Mutant(
        "the private index is compared for ever",
        "workspace/capture/private_index.py",
        "            self._trust(began_ns)\n",
        "",
        (f"{LONG}::test_the_private_index_is_trusted_when_a_later_look_compared_it",),
    ),
    Mutant(
        "a clock that was set makes files old",
        "workspace/capture/stat_cache.py",
        "return self._is_set or at.wall_ns",
        "return at.wall_ns",
        (f"{LONG}::test_after_a_clock_was_set_no_age_is_believed",),
    ),
    Mutant(
        "a file with times in the future is read for ever",
        "workspace/capture/stat_cache.py",
        "        if at.steady_ns - since_ns >= window_ns:\n            return False\n",
        "",
        (f"{LONG}::test_a_file_that_stays_the_same_for_long_enough_is_old_whatever_its_times_say",),
    ),
    Mutant(
        "a link to itself is no path to nowhere",
        "workspace/nowhere.py",
        "errno.ENOTDIR, errno.ELOOP",
        "errno.ENOTDIR",
        ("tests/workspace/test_restore.py::test_files_below_a_link_to_itself_are_gone_and_come_back",),
    ),
    Mutant(
        "a repository that cannot be listed is no mark",
        "workspace/git/layout.py",
        "    with contextlib.suppress(OSError):  # a file",
        "    with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # a file",
        ("tests/workspace/test_repo.py::test_files_beside_a_git_folder_that_git_cannot_use_are_saved",),
    ),
    Mutant(
        "a lock that is free by the time it is looked at is an error",
        "workspace/git/refs.py",
        "        return _break_if_stale(lock) and _try_lock(lock)\n",
        "        if not os.path.lexists(lock):\n            raise\n        return _break_if_stale(lock) and _try_lock(lock)\n",
        (
            "tests/workspace/test_refs.py::test_a_lock_that_is_freed_just_when_it_is_met_is_waited_for_as_any_other",
        ),
    ),
    Mutant(
        "gigabytes that are not saved are read at every start",
        "workspace/capture/files.py",
        "        if self._findings.digest_bytes + file_stat.st_size > self._limits.digest_bytes:\n",
        "        if False:\n",
        ("tests/workspace/test_guards.py::test_gigabytes_that_are_not_saved_are_not_read",),
    ),
)
