"""The breaks of what is told while a run works: lines within lines, a wait for a reader, an object that is not whole."""

from tests.mutations.mutant import SUPERVISOR, Mutant

LINES = f"{SUPERVISOR}/test_beat_lines.py"
FEED = f"{SUPERVISOR}/test_json_lines.py"
ENDINGS = f"{SUPERVISOR}/test_endings.py"

MUTANTS = (
    Mutant(
        "a line of ours within one of the command",
        "supervisor/output/relay.py",
        "        return self.at_start and not self.pending\n",
        "        return not self.pending\n",
        (f"{LINES}::test_where_both_streams_go_to_one_place_our_line_waits_for_the_end_of_a_line_of_either",),
    ),
    Mutant(
        "a line of ours that holds the end up until somebody reads it",
        "supervisor/output/relay.py",
        "        self._ways[1].drop_ours()\n        while self.is_open:",
        "        while self.is_open:",
        (f"{LINES}::test_a_reader_that_takes_none_of_our_lines_holds_up_neither_the_command_nor_the_end",),
    ),
    Mutant(
        "lines at the terminal that the command has",
        "supervisor/chronicle/chronicle.py",
        "        self._board, self._lent = board, board is None\n",
        "        self._board, self._lent = board, False\n",
        (f"{LINES}::test_no_line_is_drawn_where_the_command_has_the_terminal",),
    ),
    Mutant(
        "JSON lines that pile up for a reader who never comes",
        "supervisor/chronicle/json_lines.py",
        "        while len(self._waiting) > WAITING_LINES_MAX:\n",
        "        while not self._waiting:\n",
        (f"{FEED}::test_where_nobody_reads_in_time_the_oldest_lines_go_and_one_line_says_how_many",),
    ),
    Mutant(
        "JSON lines without masks",
        "supervisor/chronicle/json_lines.py",
        "        plain = self._masked(msgspec.to_builtins(event))\n",
        "        plain = msgspec.to_builtins(event)\n",
        (f"{FEED}::test_a_line_has_no_secret_steers_no_terminal_and_fits_a_pipe",),
    ),
    Mutant(
        "a descriptor of ours taken for one that was given",
        "supervisor/chronicle/json_lines.py",
        "        is_open = inherited and fcntl",
        "        is_open = fcntl",
        (f"{FEED}::test_a_descriptor_of_our_own_is_never_taken_for_one_that_was_given",),
    ),
    Mutant(
        "a line that goes on in one that was cut off",
        "supervisor/chronicle/json_lines.py",
        '                        self._rest = memoryview(b"\\n")\n',
        "                        pass\n",
        (f"{FEED}::test_after_kill_9_the_next_start_goes_on_below_a_line_that_was_cut_off",),
    ),
    Mutant(
        "an ending that only a watched run has",
        "supervisor/supervisor.py",
        "        if not self._chronicle.is_on and self._person.quiet:\n",
        "        if not self._chronicle.is_on:\n",
        (f"{LINES}::test_the_log_of_a_detached_run_has_its_ending_and_no_line_of_its_beats",),
    ),
)
