"""The breaks of what a call of an agent costs, and of what makes it cheap: a flush too many, and one too few."""

from tests.mutations.mutant import RUNS, SUPERVISOR, Mutant

COSTS = f"{SUPERVISOR}/test_call_costs.py"
CHANGE = f"{COSTS}::test_a_call_with_its_save_has_eight_flushes_and_starts_no_git"
QUIET = f"{COSTS}::test_a_call_that_changes_no_file_has_three_flushes_and_starts_no_git"
COMMIT = f"{COSTS}::test_a_call_that_commits_costs_no_flush_more_and_the_agents_git_flushes_what_it_does_without_us"
RESULTS = f"{SUPERVISOR}/test_call_results.py"
OUTCOME = f"{RESULTS}::test_the_outcome_of_a_local_call_waits_for_another_commit_and_that_of_an_outward_one_for_none"
KEPT = f"{SUPERVISOR}/test_transcripts.py::test_what_was_kept_survives_a_power_cut_and_so_does_what_a_killed_attempt_only_copied"
PAYLOAD = "tests/store/test_folders.py::test_a_payload_costs_two_flushes_and_one_more_where_its_folder_is_new"
MENDED = "tests/workspace/test_mended_repository.py"
CUT = "tests/crash/test_repository_powercut.py::test_after_a_cut_the_repository_has_the_commits_of_the_save_and_nothing_that_is_torn"
POWER_CUT = "workspace/restore/power_cut.py"

MUTANTS = (
    Mutant(
        "a state file that waits for the disk",
        "supervisor/attempt/state_file.py",
        "durable.replace_file(",
        "durable.write_durably(",
        (QUIET,),
    ),
    Mutant(
        "a state file that asks git for the branch",
        "workspace/repo.py",
        '        found = layout.at(real) if os.path.lexists(real / ".git") and not distrusted(real) else None\n        if found is not None and',
        "        found = layout.at(real) if own(real) else None\n        if found is not None and",
        (QUIET,),
    ),
    Mutant(
        "a transcript's copy that is flushed at each look",
        "supervisor/agent/session/follower.py",
        "            self._mirror.copy()\n",
        "            self._mirror.keep()\n",
        (f"{SUPERVISOR}/test_call_costs.py::test_lines_that_are_read_between_two_beats_wait_for_no_disk",),
    ),
    Mutant(
        "a transcript's copy without fsync",
        "supervisor/agent/session/transcript_copy.py",
        "            durable.flush(self._copy)\n",
        "",
        (KEPT,),
    ),
    Mutant(
        "a transcript's copy without fsync of its folder",
        "supervisor/agent/session/transcript_copy.py",
        "                durable.sync_folder(self._copy.parent)\n",
        "                pass\n",
        (f"{SUPERVISOR}/test_transcripts.py::test_a_copy_is_flushed_once_a_beat_and_its_folder_once",),
    ),
    Mutant(
        "what a killed attempt copied is taken for flushed",
        "supervisor/agent/session/transcript_copy.py",
        "        self._unflushed = True  # the",
        "        self._unflushed = False  # the",
        (KEPT,),
    ),
    Mutant(
        "the outcome of a local call with a commit of its own",
        "supervisor/agent/calls/calls.py",
        "            is_late = not opened.is_outward and not run.saves_effects and not self._was_long(opened)\n",
        "            is_late = False\n",
        (QUIET,),
    ),
    Mutant(
        "the outcome of an outward call that waits",
        "supervisor/agent/calls/calls.py",
        "            is_late = not opened.is_outward and not run.saves_effects and not self._was_long(opened)\n",
        "            is_late = not run.saves_effects and not self._was_long(opened)\n",
        (OUTCOME,),
    ),
    Mutant(
        "an outcome that waits although the files go back to it",
        "supervisor/agent/calls/calls.py",
        "            is_late = not opened.is_outward and not run.saves_effects and not self._was_long(opened)\n",
        "            is_late = not opened.is_outward and not self._was_long(opened)\n",
        (f"{RESULTS}::test_where_files_go_back_to_the_last_outcome_it_waits_for_nothing",),
    ),
    Mutant(
        "an outcome that waits for ever",
        "supervisor/agent/attempt.py",
        "            self._progress.guarded(partial(self._beats.append_waiting, self._timing.outcome_s))\n",
        "",
        (OUTCOME,),
    ),
    Mutant(
        "what waits for a commit is not known yet",
        "runs/journal.py",
        "            for item, _ in events:\n                self._take(item)\n",
        "            for item, _ in events:\n                self.record.take(item)\n",
        (f"{RESULTS}::test_the_outcome_of_a_local_call_is_on_record_with_the_end_of_its_beat",),
    ),
    Mutant(
        "a full disk under a beat's save that is not named",
        "supervisor/beat_in_flight.py",
        "            if self.run.journal.store.local.room_bytes() >= ROOM_BYTES_MIN:\n                raise\n",
        "            raise\n",
        (
            f"{SUPERVISOR}/test_interrupted_calls.py::test_a_state_disk_that_is_full_under_an_agent_ends_the_attempt_with_a_hint[0]",
        ),
    ),
    Mutant(
        "a payload that flushes the folder above its own each time",
        "store/durable.py",
        "        if known is None or known.get(folder.name) != folder.stat().st_ino:\n",
        "        if True:\n",
        (PAYLOAD,),
    ),
    Mutant(
        "a payload in a folder whose name nobody flushed",
        "store/durable.py",
        "            sync_folder(self._root)\n",
        "",
        (PAYLOAD,),
    ),
    Mutant(
        "an act that looks into the inbox unasked",
        "runs/engine/run.py",
        "        is_rung = not if_rung or self.root.journal.lease.request_waits() or not self.journal.store.usable\n",
        "        is_rung = True\n",
        (f"{RUNS}/test_requests.py::test_an_act_reads_the_inbox_only_when_somebody_has_put_something_in",),
    ),
    Mutant(
        "an act that does not look into the inbox when it is rung",
        "runs/engine/run.py",
        "        is_rung = not if_rung or self.root.journal.lease.request_waits() or not self.journal.store.usable\n",
        "        is_rung = not if_rung\n",
        (f"{RUNS}/test_requests.py::test_an_act_reads_the_inbox_only_when_somebody_has_put_something_in",),
    ),
    Mutant(
        "an agent's gits that flush all they write",
        "supervisor/attempt/command.py",
        "    if agent is None or run.files is None:",
        "    if True:",
        (COMMIT,),
    ),
    Mutant(
        "a repository that nobody mends after a power cut",
        "runs/files.py",
        "        events = self._mend_repository(wanted, at)\n",
        "        events: list[ev.AnyEvent] = []\n",
        (
            f"{RUNS}/test_files.py::test_after_another_boot_the_repository_gets_back_what_its_own_git_had_not_flushed",
        ),
    ),
    Mutant(
        "objects that do not come back from the vault",
        POWER_CUT,
        "        give_back.give_objects(place.vault, place.common_dir, found)\n",
        "        pass\n",
        (f"{CUT}[plain]",),
    ),
    Mutant(
        "torn objects that stay",
        POWER_CUT,
        "damage.missing(place, sorted(oids), _OWN) | torn)",
        "damage.missing(place, sorted(oids), _OWN))",
        (f"{MENDED}::test_objects_of_commits_and_index_come_back_from_the_vault[torn]",),
    ),
    Mutant(
        "empty objects that stay",
        POWER_CUT,
        "                _loose(folder, oid).unlink(missing_ok=True)",
        "                pass",
        (f"{MENDED}::test_an_empty_object_that_nobody_has_is_no_object_that_git_takes_for_one",),
    ),
    Mutant(
        "a branch that stays on a lost commit",
        POWER_CUT,
        "(oid in lost if oid else",
        "(False if oid else",
        (f"{MENDED}::test_a_commit_that_was_lost_before_any_save_had_it_is_left_for_the_one_of_the_save",),
    ),
    Mutant(
        "a branch that a person moved after the cut goes back",
        POWER_CUT,
        '    if not _is_older(place.common_dir / branch, held):\n        return ""\n',
        "",
        (f"{MENDED}::test_a_branch_that_somebody_moved_since_stays_there",),
    ),
    Mutant(
        "a branch that stays gone with the packed refs",
        POWER_CUT,
        "        if packed.exists() and _is_blank(os.fsencode(packed)):\n            return True\n",
        "",
        (f"{MENDED}::test_packed_refs_that_are_empty_are_where_the_save_has_them",),
    ),
    Mutant(
        "a branch that a person removed comes back",
        POWER_CUT,
        '        return head == f"ref: {ref}" and _is_older(folder, held)\n',
        "        return True\n",
        (f"{MENDED}::test_a_branch_that_somebody_removed_since_does_not_come_back",),
    ),
    Mutant(
        "an index that stays damaged",
        POWER_CUT,
        "    restore.put_index(saver, held)\n",
        "",
        (f"{MENDED}::test_an_index_that_is_damaged_is_as_in_the_save",),
    ),
    Mutant(
        "a branch of a history that a person began anew",
        POWER_CUT,
        '        return head == f"ref: {ref}" and _is_older(folder, held)\n',
        '        return head == f"ref: {ref}"\n',
        (f"{MENDED}::test_a_history_that_a_person_began_anew_stays_away",),
    ),
    Mutant(
        "a branch that a cut took and that does not come back",
        POWER_CUT,
        '        return head == f"ref: {ref}" and _is_older(folder, held)\n',
        "        return False\n",
        (f"{MENDED}::test_a_history_that_a_person_began_anew_stays_away",),
    ),
    Mutant(
        "a commit made while a save was reading is lost",
        "workspace/capture/save.py",
        "looked_at=self._findings.since,",
        "looked_at=at,",
        (f"{MENDED}::test_a_commit_made_while_a_save_was_reading_stays",),
    ),
    Mutant(
        "a file of a backup that is older than the save",
        POWER_CUT,
        "max(found.st_mtime, found.st_ctime)",
        "found.st_mtime",
        (f"{MENDED}::test_what_came_from_a_backup_with_its_old_time_stays",),
    ),
    Mutant(
        "a branch goes back and its commits are in no vault",
        POWER_CUT,
        '    if now.oid:\n        keep_commit(place, f"{MOVED}/{now.oid[:16]}", now.oid)\n',
        "",
        (
            f"{MENDED}::test_a_branch_whose_move_was_lost_is_where_the_save_has_it_and_what_it_was_is_anchored",
        ),
    ),
    Mutant(
        "a detached HEAD goes back and its commits are in no vault",
        POWER_CUT,
        "        if not (is_lost or now.branch):\n",
        "        if False:\n",
        (f"{MENDED}::test_a_detached_head_whose_move_was_lost_is_anchored",),
    ),
    Mutant(
        "a partial clone is damage",
        POWER_CUT,
        "        partial.is_partial(place) or damage",
        "        damage",
        (f"{MENDED}::test_what_a_partial_clone_lacks_is_no_damage",),
    ),
    Mutant(
        "one lost commit keeps all from being mended",
        POWER_CUT,
        "        return _walked(place, tips.values()), []\n",
        "        pass\n    return _walked(place, tips.values()), []\n",
        (f"{MENDED}::test_a_commit_that_is_lost_in_part_keeps_nothing_else_from_being_mended",),
    ),
    Mutant(
        "a branch that stays on a commit without its tree",
        POWER_CUT,
        "    return lost | {oid for oid, tree in trees.items() if tree in gone}\n",
        "    return lost\n",
        (f"{MENDED}::test_a_commit_that_is_lost_in_part_keeps_nothing_else_from_being_mended",),
    ),
    Mutant(
        "a repository is mended before its files are saved",
        "runs/files.py",
        '            saved += filter(None, [self.save("found", head, "found on resume", if_dirty=True)])\n        except',
        "            pass\n        except",
        (f"{RUNS}/test_files.py::test_what_a_damaged_index_names_is_saved_before_the_index_goes_back",),
    ),
)
