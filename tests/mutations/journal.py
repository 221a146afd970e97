"""The breaks of what keeps a run's journal, its saves and its recovery whole through kills and broken disks."""

from tests.mutations.mutant import RUNS, SUPERVISOR, Mutant

CRASH = "tests/crash"
FLUSHES = "tests/workspace/test_flushes.py::test_a_later_save_flushes_its_pack_and_ref_and_nothing_else"
KILLED = f"{CRASH}/test_saves_killed.py"
POINT = f"{CRASH}/test_points.py::test_every_named_point_is_met_and_survived"
RULES = f"{CRASH}/test_rules.py"
GROUP = f"{CRASH}/test_disk_errors.py::test_in_a_group_commit"

MUTANTS = (
    Mutant(
        "an effect that could not be started and that ends as if it was refused",
        "supervisor/socket/server.py",
        "NOT_FOUND if isinstance(error, CannotStart) else REFUSED",
        "REFUSED",
        (
            f"{SUPERVISOR}/test_steps.py::test_an_effect_that_could_not_be_started_before_the_script_went_on_ends_as_if_its_program_were_not_there",
        ),
    ),
    Mutant(
        "a run that another process wakes and that counts as failed",
        "supervisor/control/wake.py",
        '            return self._settled(summary, True, "another process goes on with it")\n',
        "            pass\n",
        (
            f"{SUPERVISOR}/test_night.py::test_a_run_that_another_resume_starts_meanwhile_is_being_run_and_no_failure",
        ),
    ),
    # -- what a repository's file may set
    Mutant(
        "a store that a repository's file may name",
        "settings.py",
        "_STORE, read=_place",
        "_MAY, read=_place",
        (
            f"{SUPERVISOR}/test_settings_of_repositories.py::test_a_stranger_cannot_have_a_clone_wake_runs_that_came_with_it",
        ),
    ),
    Mutant(
        "a repository's file that loosens what a promise depends on",
        "settings.py",
        "return stricter is None or stricter(setting.value, own)",
        "return True",
        (
            f"{SUPERVISOR}/test_settings_of_repositories.py::test_what_a_promise_depends_on_is_only_made_stricter",
        ),
    ),
    # -- durability
    Mutant(
        "a blob without fsync",
        "store/durable.py",
        "            _write_all(fd, data)\n            os.fsync(fd)\n        except OSError:\n",
        "            _write_all(fd, data)\n        except OSError:\n",
        (
            f"{CRASH}/test_syscalls.py::test_a_blob_is_flushed_before_it_gets_its_name_and_that_before_the_event_that_names_it",
        ),
    ),
    Mutant(
        "a blob's name without fsync of its folder",
        "store/durable.py",
        "        os.replace(temporary, path)\n        sync_folder(path.parent)\n",
        "        os.replace(temporary, path)\n",
        (f"{CRASH}/test_syscalls.py::test_every_new_name_is_made_durable_by_an_fsync_of_its_folder",),
    ),
    Mutant(
        "a new folder without fsync of its parent",
        "store/durable.py",
        "        sync_folder(folder.parent)\n",
        "",
        ("tests/store/test_folders.py::test_every_new_folder_is_made_durable_through_the_one_above",),
    ),
    Mutant(
        "synchronous=NORMAL",
        "store/sqlite/database.py",
        'pragma("synchronous", "full")',
        'pragma("synchronous", "normal")',
        (f"{CRASH}/test_powercut.py::test_cut_at_any_operation_every_acknowledged_append_is_there",),
    ),
    Mutant(
        "the mark is not written",
        "store/locks.py",
        'self._map[:_MARK_BYTES] = b"%020d\\n" % n',
        "pass",
        (f"{CRASH}/test_damaged_stores.py::test_a_log_whose_tail_is_lost_is_found_out",),
    ),
    Mutant(
        "a damaged file is not looked at first",
        "store/sqlite/database.py",
        "        schema.inspect(path, vfs)\n",
        "        pass\n",
        (f"{CRASH}/test_damaged_stores.py::test_a_damaged_or_foreign_file_is_refused_and_not_changed",),
    ),
    # -- saves of the workspace
    Mutant(
        "a save does not flush what the agent committed",
        "workspace/capture/save.py",
        "            brought = self._bring_in(pack, [*head, *objects_named], index_tree, previous, inner)\n",
        "            pass\n",
        (f"{CRASH}/test_saves_powercut.py::test_a_save_that_returned_survives_any_later_cut",),
    ),
    Mutant(
        "a save's pack without fsync",
        "workspace/git/packs.py",
        "        os.fsync(self._fd)\n",
        "",
        (f"{CRASH}/test_saves_powercut.py::test_a_save_that_returned_survives_any_later_cut",),
    ),
    Mutant(
        "a save's pack index without fsync",
        "workspace/git/packs.py",
        "        os.fsync(index_fd)\n",
        "",
        (
            f"{FLUSHES}[change-each0]",
            f"{CRASH}/test_saves_powercut.py::test_a_save_that_returned_survives_any_later_cut",
        ),
    ),
    Mutant(
        "a save's pack without fsync of its folder",
        "workspace/git/packs.py",
        "        sync_folder(self._folder)\n        return Pack",
        "        return Pack",
        (f"{FLUSHES}[change-each0]",),
    ),
    Mutant(
        "a ref's value without fsync",
        "workspace/git/refs.py",
        "        os.write(fd, data)\n        os.fsync(fd)\n",
        "        os.write(fd, data)\n",
        (f"{FLUSHES}[change-each0]",),
    ),
    Mutant(
        "a ref's name without fsync of its folder",
        "workspace/git/refs.py",
        "            raise\n        _sync_upwards(git_dir, ref)\n",
        "            raise\n",
        (f"{CRASH}/test_saves_powercut.py::test_a_save_that_returned_survives_any_later_cut",),
    ),
    Mutant(
        "a save's ref before its pack",
        "workspace/capture/save.py",
        "        pack.close()\n        if brought is not None:",
        "        refs.write_ref(self._repo.vault, self._ref(at), w, old=refs.ANY)\n"
        "        pack.close()\n        if brought is not None:",
        (f"{KILLED}::test_killed_at_any_crash_point_of_a_save_the_ones_before_are_whole",),
    ),
    Mutant(
        "a save's pack without its keep file",
        "workspace/git/packs.py",
        '((keep, ".keep"), (self._temporary, ".pack"), (index, ".idx"))',
        '((self._temporary, ".pack"), (index, ".idx"))',
        (f"{CRASH}/test_saves_reachable.py::test_gc_in_the_middle_of_a_save_takes_nothing_from_it",),
    ),
    Mutant(
        "a save does not hold the one before",
        "workspace/capture/save.py",
        "[*previous, *named, *filter(",
        "[*named, *filter(",
        (
            f"{CRASH}/test_saves_reachable.py::test_every_save_of_a_run_travels_in_a_bundle_of_its_newest_ref[plain]",
        ),
    ),
    Mutant(
        "what a killed save left is not swept",
        "workspace/capture/saver.py",
        "        refs.sweep_locks(self.repo().vault)\n",
        "",
        (f"{KILLED}::test_killed_at_any_crash_point_of_a_save_the_ones_before_are_whole",),
    ),
    Mutant(
        "after a power cut the agent's lost objects are believed in",
        "workspace/capture/save.py",
        "                memory.lost = not self._is_whole(memory.tree)\n",
        "",
        (
            f"{CRASH}/test_saves_powercut.py::test_a_save_survives_when_a_neighbours_flush_commits_the_journal_first[plain]",
        ),
    ),
    # -- a failed write
    Mutant(
        "the store goes on after a failed write",
        "store/sqlite/database.py",
        "            self._broken = error\n",
        "            pass\n",
        (GROUP + "_an_io_error_fails_every_waiter",),
    ),
    Mutant(
        "an I/O error fails only the first of a group",
        "store/sqlite/commits.py",
        "                pending.error = pending.error or known\n",
        "                pending.error = pending.error or (known if pending is group[0] else None)\n",
        (GROUP + "_an_io_error_fails_every_waiter",),
    ),
    Mutant(
        "a stale append fails its whole group",
        "store/sqlite/commits.py",
        "            for row in rows:\n"
        "                writer.execute(_INSERT, row)\n"
        "        except apsw.ConstraintError:\n"
        "            pending.error = self._lost(pending.batch)\n",
        "            for row in rows:\n"
        "                writer.execute(_INSERT, row)\n"
        "        except apsw.ConstraintError:\n"
        "            raise self._lost(pending.batch) from None\n",
        (GROUP + "_a_stale_append_fails_alone",),
    ),
    Mutant(
        "the ballast is never given back",
        "store/sqlite/commits.py",
        "        self._ballast.unlink(missing_ok=True)\n",
        "",
        (
            f"{CRASH}/test_disk_errors.py::test_a_disk_that_fills_up_under_a_run_stops_it_with_its_cause[3]",
            f"{CRASH}/test_disk_errors.py::test_on_a_full_disk_the_ballast_lets_the_outcome_and_the_cause_be_recorded",
        ),
    ),
    Mutant(
        "new work is begun on a full disk",
        "store/sqlite/commits.py",
        "        self.low = True\n",
        "",
        (
            f"{CRASH}/test_disk_errors.py::test_on_a_full_disk_the_ballast_lets_the_outcome_and_the_cause_be_recorded",
        ),
    ),
    # -- fences
    Mutant(
        "no epoch in the fence",
        "store/sqlite/commits.py",
        "WHERE id = ?6 AND epoch = ?7)",
        "WHERE id = ?6 AND ?7 = ?7)",
        (
            f"{CRASH}/test_zombies.py::test_every_write_of_a_lost_lease_is_refused",
            GROUP + "_a_stale_append_fails_alone",
        ),
    ),
    Mutant(
        "no sequence number in the fence",
        "store/sqlite/commits.py",
        "(SELECT ?2 FROM events WHERE run = ?1 AND seq = ?2 - 1)",
        "?2",
        (GROUP + "_a_stale_append_fails_alone",),
    ),
    Mutant(
        "an act is not guarded by the lease",
        "store/sqlite/leases.py",
        "            if late and self._leases.renew(",
        "            if False and self._leases.renew(",
        (f"{CRASH}/test_zombies.py::test_stopped_before_a_blind_act_a_zombie_does_not_perform_it",),
    ),
    Mutant(
        "a taker does not mind that the holder is in an act",
        "store/locks.py",
        "    try:\n        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n    except",
        "    try:\n        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)\n    except",
        (f"{CRASH}/test_zombies.py::test_stopped_inside_an_act_a_zombie_is_killed_by_the_taker",),
    ),
    Mutant(
        "the lock is let go before the run is",
        "store/locks.py",
        "            if _is_at(fd, path):\n                return",
        "            if _is_at(fd, path):\n                fcntl.flock(fd, fcntl.LOCK_UN)\n                return",
        (f"{CRASH}/test_two_starts.py::test_of_two_starts_at_once_one_wins_and_the_other_says_who_holds_it",),
    ),
    Mutant(
        "a store that is gone is not noticed",
        "store/sqlite/database.py",
        "_identity(self.path) != self._identity:",
        "False:",
        (
            f"{RUNS}/test_heartbeat.py::test_a_store_that_is_gone_is_noticed_and_nothing_more_is_written_or_performed",
        ),
    ),
    Mutant(
        "after a failed write an act is performed all the same",
        "store/sqlite/leases.py",
        "        self._leases.check_usable()  # after",
        "        pass  # after",
        (
            f"{RUNS}/test_heartbeat.py::test_a_store_that_is_gone_is_noticed_and_nothing_more_is_written_or_performed",
        ),
    ),
    Mutant(
        "all leases are as long as the first",
        "runs/engine/heartbeat.py",
        "            heart._leases[lease.run, lease.epoch] = lease, ttl_s\n",
        "            ttl_s = next(iter(heart._due_s), ttl_s)\n"
        "            heart._leases[lease.run, lease.epoch] = lease, ttl_s\n",
        (
            f"{RUNS}/test_heartbeat.py::test_leases_of_different_lengths_are_each_kept_alive_and_none_is_shortened",
        ),
    ),
    Mutant(
        "a cancel waits for ever",
        "runs/inbox.py",
        'return request.what in ("cancel", "kill") and now',
        "return False and now",
        (f"{RUNS}/test_cancel.py::test_after_the_grace_period_a_cancel_leaves_the_act_under_way_in_doubt",),
    ),
    Mutant(
        "an act goes on after another task ended the attempt",
        "runs/engine/run.py",
        "        inbox.require_open(root.journal, self.journal)\n",
        "",
        (f"{RUNS}/test_cancel.py::test_an_act_that_fails_after_the_cancel_is_not_performed_again",),
    ),
    Mutant(
        "a forked child may write",
        "store/sqlite/database.py",
        "        self._forked = True\n",
        "        pass\n",
        (f"{CRASH}/test_two_starts.py::test_a_forked_child_cannot_write_with_its_parents_lease",),
    ),
    # -- effects
    Mutant(
        "the act before its intent",
        "runs/effects.py",
        "                yield from course.intend((yield from course.approval()))\n                yield from course.go()\n",
        "                yield from course.go()\n                yield from course.intend((yield from course.approval()))\n",
        (f"{RULES}::test_a_blind_act_without_an_outcome_is_never_repeated_unasked",),
    ),
    Mutant(
        "the argument digest is not compared",
        "runs/effects.py",
        "    if (intent.name, intent.digest) == (act.name, act.digest):\n",
        "    if intent.name == act.name:\n",
        (f"{RULES}::test_an_act_whose_arguments_changed_is_not_performed",),
    ),
    Mutant(
        "performed again when in doubt",
        "core/recovery.py",
        "    return Ask(_why(record, facts))\n",
        "    return Perform()\n",
        (f"{RULES}::test_a_blind_act_without_an_outcome_is_never_repeated_unasked",),
    ),
    Mutant(
        "a did-not counts although the act may be under way",
        "core/recovery.py",
        "Probe(did_not_counts=not (facts.performer_lives or facts.leftovers))",
        "Probe(did_not_counts=True)",
        (f"{RULES}::test_a_did_not_does_not_count_while_the_act_may_be_under_way",),
    ),
    Mutant(
        "old keys are reissued",
        "core/recovery.py",
        "    return facts.age_s is not None and 0 <= facts.age_s < facts.key_ttl_s\n",
        "    return True\n",
        (f"{CRASH}/test_clock.py::test_a_key_that_may_be_too_old_is_asked_about_and_not_reissued",),
    ),
    Mutant(
        "the key is made from the arguments",
        "runs/engine/beat.py",
        "effect_key(self._journal.run, self.number, name, occurrence)",
        "digest(encoded)",
        (f"{RULES}::test_the_same_act_with_the_same_arguments_is_another_effect_the_next_time",),
    ),
    Mutant(
        "a reissue has a key of its own",
        "runs/effects.py",
        "        self._reissued += 1\n",
        "        self._reissued += 1\n"
        "        self.act = msgspec.structs.replace(self.act, key=self.act.key + str(time.monotonic_ns()))\n",
        (f"{POINT}[act.performed]", f"{POINT}[reissue.before]"),
    ),
    Mutant(
        "recorded acts are performed again",
        "runs/engine/beat.py",
        "            record = self._recorded(name, occurrence, key)\n",
        "            record = None\n",
        (f"{POINT}[act.confirmed]",),
    ),
    # -- runs
    Mutant(
        "recorded decisions are asked again",
        "runs/engine/beat.py",
        "            if recorded is not None:\n                return self._journal.value(recorded.value)\n            if not callable(fn):\n",
        "            if not callable(fn):\n",
        (f"{POINT}[decide.recorded]",),
    ),
    Mutant(
        "the plan is made again",
        "runs/engine/plan.py",
        "        if run.is_done or run.state.plan_seq:\n",
        "        if run.is_done:\n",
        (f"{POINT}[plan.recorded]",),
    ),
    Mutant(
        "a beat's end leaves it open",
        "core/state.py",
        "        open_beat=None,\n        effects_open=open_after_beat(state.effects_open),\n",
        "        effects_open=open_after_beat(state.effects_open),\n",
        (f"{CRASH}/test_points.py::test_the_uninterrupted_run_does_each_effect_once",),
    ),
    Mutant(
        "a beat's end does not move the cursor",
        "core/state.py",
        "        cursor=last.cursor,\n        over=last.over,\n",
        "        over=last.over,\n",
        (f"{CRASH}/test_points.py::test_the_uninterrupted_run_does_each_effect_once", f"{POINT}[beat.done]"),
    ),
    Mutant(
        "another child each time",
        "store/sqlite/store.py",
        "            if found is not None and found[0] != after:\n",
        "            if found is not None and found[0] != after and opened.parent is None:\n",
        (f"{POINT}[child.finished]",),
    ),
    Mutant(
        "another contract is not noticed",
        "runs/opening/admission.py",
        "    changed = contract_of(terms, recorded) != recorded\n",
        "    changed = False\n",
        (f"{RULES}::test_another_contract_is_refused_until_it_is_amended",),
    ),
    Mutant(
        "a batch that failed moves the store's mark",
        "store/sqlite/commits.py",
        "        rows = self._rows(pending)\n        if pending.error is not None:\n            return\n",
        "        rows = self._rows(pending)\n",
        ("tests/runs/test_hostile.py::test_a_released_lease_in_a_group_does_not_move_the_stores_mark",),
    ),
    Mutant(
        "a beat ends over an effect in doubt",
        "runs/engine/beat.py",
        " or journal.standing.effects_open",
        "",
        ("tests/runs/test_hostile.py::test_no_beat_ends_over_an_effect_in_doubt_of_another_beat",),
    ),
    Mutant(
        "a rewind that is killed forgets what a person changed",
        "runs/files.py",
        "            files_notes.note(private, plan)\n",
        "",
        (
            "tests/runs/test_files.py::test_killed_while_it_rewinds_the_next_one_still_knows_what_a_person_changed",
        ),
    ),
    Mutant(
        "a workspace half filled counts as whole",
        "runs/files.py",
        "        files_notes.note(private, Recreating(self._run, commit, tip))\n",
        "",
        ("tests/runs/test_files.py::test_killed_while_a_lost_workspace_is_filled_the_next_one_fills_it",),
    ),
    Mutant(
        "failing checks are ignored",
        "runs/engine/finish.py",
        "    if failed is not None:\n        raise ChecksFailed(",
        "    if failed is not None and False:\n        raise ChecksFailed(",
        (f"{RULES}::test_a_run_whose_check_fails_is_not_done_and_checks_again",),
    ),
    # -- the supervisor
    Mutant(
        "a guardian that leaves without cleaning up",
        "supervisor/guardian/guardian.py",
        "            note = lock.clean_up(self._charge, spare={os.getpid()}, why=word.why, wanted=word.wanted)\n            _tell(note, self._charge)\n",
        "            pass\n",
        (
            f"{SUPERVISOR}/test_kill_combinations.py::test_the_guardian_of_a_dead_supervisor_stops_the_agent_and_saves_before_it_leaves",
        ),
    ),
    Mutant(
        "a start that does not stop what an earlier attempt left",
        "supervisor/attempt/leftovers.py",
        "    reaped = reap.stop(found, first=signal.SIGTERM, grace_s=Timing.current().reap_grace_s)\n",
        "    reaped = reap.ReapReport()\n",
        (
            f"{SUPERVISOR}/test_kill_combinations.py::test_killed_in_any_combination_the_next_start_goes_on[guardian+supervisor]",
        ),
    ),
    Mutant(
        "a start that does not wait for the guardian",
        "supervisor/attempt/leftovers.py",
        "    lock.wait_for_other(local, run.id, mine=guardian)\n",
        "",
        (
            f"{SUPERVISOR}/test_kill_combinations.py::test_a_guardian_that_does_not_come_to_an_end_is_killed_and_its_work_done",
        ),
    ),
    Mutant(
        "a second signal that does not hurry",
        "supervisor/attempt/processes.py",
        "grace_s=grace_s, on_wait=self._is_hurried)",
        "grace_s=grace_s)",
        (f"{SUPERVISOR}/test_signals.py::test_a_second_signal_hurries_and_a_third_changes_nothing",),
    ),
    Mutant(
        "a step that is found only in its own beat",
        "supervisor/socket/script_calls.py",
        "            recorded = self._known.get((named, occurrence))\n",
        "            recorded = None\n",
        (f"{SUPERVISOR}/test_steps.py::test_a_step_is_replayed_to_the_byte_with_its_code",),
    ),
    Mutant(
        "an effect under a key of its beat",
        "supervisor/socket/script_calls.py",
        "            own = key or effect_key(self._run.id, 0, name, occurrence)\n",
        "            own = key or effect_key(self._run.id, self._beat.number, name, occurrence)\n",
        (f"{SUPERVISOR}/test_steps.py::test_an_effect_is_done_once_also_when_beats_went_by",),
    ),
    Mutant(
        "attempts without progress that nobody counts",
        "core/restarts.py",
        "            fruitless=0 if progress else self.fruitless + (not at_wall),\n",
        "            fruitless=0,\n",
        (f"{SUPERVISOR}/test_run.py::test_three_attempts_without_progress_are_quarantined",),
    ),
    Mutant(
        "a restore that writes over what no save took",
        "workspace/restore/restore.py",
        "    before = saver.capture(purpose, also=also - options.spared, apart=covering - options.spared)\n",
        "    before = saver.capture(purpose)\n",
        (
            "tests/workspace/test_guards.py::test_what_a_save_would_not_take_any_more_is_saved_before_a_restore_writes_over_it",
        ),
    ),
    Mutant(
        "refs that are not written again after a cut",
        "runs/files.py",
        "        self._anchor(head)\n",
        "",
        (f"{RUNS}/test_files.py::test_refs_that_did_not_survive_a_power_cut_are_written_again",),
    ),
    Mutant(
        "an event's checksum ignores its place",
        "store/checksums.py",
        """zlib.crc32(data, zlib.crc32(b"%s %d " % (run.encode(), place)))""",
        """zlib.crc32(data)""",
        ("tests/store/test_bit_flips.py::test_an_event_moved_to_another_place_or_run_is_found",),
    ),
    Mutant(
        "a damaged checksum counts as none",
        "store/checksums.py",
        "looks_sealed or _bits_apart(end, wanted) <= _DAMAGED_BITS_MAX",
        "looks_sealed and False",
        ("tests/store/test_bit_flips.py::test_a_flip_in_any_event_is_found",),
    ),
    Mutant(
        "a damaged head is read as it is",
        "store/rows.py",
        """found.run == run and checksums.verdict(stored, run, found.seq) != "damaged\"""",
        "found.run == run",
        (
            "tests/store/test_bit_flips.py::test_a_damaged_head_is_made_again_from_the_events_and_costs_no_other_run",
        ),
    ),
    Mutant(
        "a deleted database is an empty one",
        "store/sqlite/place.py",
        "        if count:\n",
        "        if False:\n",
        ("tests/cli/test_doctor_all.py::test_a_database_that_was_deleted_is_not_called_empty",),
    ),
    Mutant(
        "a repair that changes nothing",
        "store/sqlite/repair.py",
        "    write_head(connection, number, run.state)\n",
        "",
        ("tests/cli/test_doctor_all.py::test_a_damaged_head_costs_nobody_anything_and_is_made_again",),
    ),
)
