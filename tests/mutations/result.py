"""The breaks of taking over, undoing and forgetting: each would lose work, or leave a repository between two states."""

from tests.mutations.mutant import Mutant

APPLY = "tests/cli/test_apply.py"
UNDO = "tests/cli/test_undo.py"
RM = "tests/cli/test_rm.py"
ODD = "tests/cli/test_apply_odd_files.py"
IN_THE_WAY = f"{APPLY}::test_a_file_that_somebody_changed_here_is_named_and_nothing_is_changed"

MUTANTS = (
    Mutant(
        "a take-over that was cut off is not taken back",
        "workspace/result/take_over.py",
        "        if repo.head(saver.repo()).oid in (note.onto, note.commit):\n",
        "        if False:\n",
        (f"{APPLY}::test_killed_between_files_head_and_index_nothing_stays_half_way[apply.head]",),
    ),
    Mutant(
        "files are written before the note of it",
        "workspace/result/take_over.py",
        "    durable.write_durably(saver.private / _NOTE, msgspec.json.encode(note))\n",
        "",
        (f"{APPLY}::test_killed_while_git_writes_the_files_they_come_back_first",),
    ),
    Mutant(
        "what is taken back takes the files of others with it",
        "workspace/result/take_over.py",
        "restore.Options(force=True, spared=frozenset(others))",
        "restore.Options(force=True)",
        (f"{APPLY}::test_a_file_changed_since_a_cut_off_apply_that_it_does_not_touch_stays",),
    ),
    Mutant(
        "the objects of a result stay in the room",
        "workspace/result/take_over.py",
        '    give(room.git_dir, place.common_dir, [tip, *(f"^{each}" for each in known if each)])\n',
        "    return\n",
        (f"{APPLY}::test_commits_come_as_commits_and_the_rest_as_changes",),
    ),
    Mutant(
        "what the run had not committed is staged",
        "workspace/result/take_over.py",
        "    result_tree.put_entries(room, {path: staged for path, (staged, _) in beyond.items()}, index)\n",
        "",
        (f"{APPLY}::test_commits_come_as_commits_and_the_rest_as_changes",),
    ),
    Mutant(
        "files in the way that git does not track do not count",
        "workspace/result/merge.py",
        "        if path not in tracked and path not in found and _is_there(root, path, tracked):\n",
        "        if False:\n",
        (f"{IN_THE_WAY}[untracked]", f"{IN_THE_WAY}[ignored]"),
    ),
    Mutant(
        "staged changes do not count",
        "workspace/result/merge.py",
        '    found |= {path: "staged, and not committed" for path in command.names(staged) if path in wanted}\n',
        "",
        (f"{IN_THE_WAY}[staged]",),
    ),
    Mutant(
        "typed again, it finds its own changes in the way",
        "workspace/result/merge.py",
        "    return same | (gone - to_do)\n",
        "    return set()\n",
        (f"{APPLY}::test_typed_again_it_changes_nothing",),
    ),
    Mutant(
        "a hook that judges merges is passed over",
        "workspace/result/merge.py",
        "    if _is_judged(room):\n",
        "    if False:\n",
        (f"{APPLY}::test_no_hook_runs_and_a_hook_that_judges_merges_is_left_to_git_commit",),
    ),
    Mutant(
        "the bytes of the disk are taken for what git has",
        "workspace/result/tree.py",
        "    tree = _as_added(room, files)\n",
        "    tree = files.tree\n",
        (f"{APPLY}::test_files_are_converted_as_git_converts_them",),
    ),
    Mutant(
        "files that a sparse checkout leaves out are deleted",
        "operations/result.py",
        "frozenset(closed)",
        "frozenset()",
        (f"{APPLY}::test_files_that_no_save_takes_are_not_deleted_here",),
    ),
    Mutant(
        "a run at work has a result",
        "acts/apply.py",
        '    if status == "running" or store.holder_lives(root.run) or supervisor_of(store, root.run):\n',
        "    if False:\n",
        (f"{APPLY}::test_a_run_at_work_has_no_result_yet",),
    ),
    Mutant(
        "an undo is not noted before it begins",
        "operations/undo.py",
        "    _note(saver, [*steps, step])\n",
        "",
        (f"{UNDO}::test_killed_at_any_crash_point_the_same_command_ends_it",),
    ),
    Mutant(
        "the save of a killed undo's half way is what an undo of it brings back",
        "operations/undo.py",
        '    before = cut_off or done.before or ""\n',
        '    before = done.before or ""\n',
        (f"{UNDO}::test_killed_at_any_crash_point_the_same_command_ends_it",),
    ),
    Mutant(
        "an undo works beside a living run",
        "acts/undo.py",
        "        if store.holder_lives(each.root) or supervisor_of(store, each.root):\n",
        "        if False:\n",
        (f"{UNDO}::test_while_a_run_lives_in_the_folder_nothing_is_undone",),
    ),
    Mutant(
        "an undo of an earlier state of the run counts",
        "operations/undo.py",
        "        if (step.run, step.seq) != (run.run, run.state.seq):\n",
        "        if step.run != run.run:\n",
        (f"{UNDO}::test_a_run_that_goes_on_ends_what_was_undone",),
    ),
    Mutant(
        "the saves that a fork needs go with its source",
        "operations/forget.py",
        "        if each.state.fork is not None:\n            found |=",
        "        if False:\n            found |=",
        (f"{RM}::test_the_saves_that_a_fork_needs_stay",),
    ),
    Mutant(
        "the journal goes first",
        "operations/forget.py",
        "        needed = _needed(store, set(runs))\n        payloads",
        "        store.forget(root.run)\n        needed = _needed(store, set(runs))\n        payloads",
        (f"{RM}::test_nothing_of_the_run_is_left_and_all_else_is",),
    ),
    Mutant(
        "a run with an effect in doubt is forgotten",
        "acts/forget.py",
        "    if doubts:\n",
        "    if False:\n",
        (f"{RM}::test_with_an_effect_in_doubt_it_stays_unless_forced",),
    ),
    Mutant(
        "a run at work is forgotten",
        "acts/forget.py",
        "    if store.holder_lives(run.run) or supervisor_of(store, run.run):\n",
        "    if False:\n",
        (f"{RM}::test_a_run_at_work_stays",),
    ),
    Mutant(
        "a submodule becomes plain files",
        "workspace/result/tree.py",
        "    linked = _as_folders(submodules(room, files))\n",
        "    linked = frozenset[bytes]()\n",
        (f"{ODD}::test_a_submodule_stays_one[as it was]",),
    ),
    Mutant(
        "what a sparse checkout leaves out is taken over into nothing",
        "workspace/result/merge.py",
        "    dirty |= dict.fromkeys(_outside_sparse(room, plan), SPARSE)\n",
        "",
        (f"{ODD}::test_what_a_sparse_checkout_here_leaves_out_comes_as_a_commit_or_not_at_all",),
    ),
    Mutant(
        "a file that git is told not to look at is not looked at",
        "workspace/result/merge.py",
        "    _look_at_all(room, wanted, index)\n",
        "",
        (f"{ODD}::test_a_file_that_git_is_told_not_to_look_at_is_in_the_way_too[--skip-worktree]",),
    ),
    Mutant(
        "what was deleted is seen through a link",
        "workspace/result/merge.py",
        "        if number < len(parts) and not stat.S_ISDIR(mode):\n",
        "        if False:\n",
        (f"{ODD}::test_a_folder_a_file_and_a_link_take_each_other_s_place[folder_and_link-False]",),
    ),
    Mutant(
        "a run is forgotten that has the only copy of what an undo took away",
        "acts/forget.py",
        "    if undo.is_in_force(store.local, run):\n",
        "    if False:\n",
        (f"{RM}::test_what_an_undo_took_away_is_not_forgotten_with_the_run_unless_forced",),
    ),
    Mutant(
        "an undo that goes on moves a branch over commits made meanwhile",
        "operations/undo.py",
        "    ours = now in (step.was, repo.Head(held.meta.head, held.meta.branch))\n",
        "    ours = True\n",
        (f"{UNDO}::test_a_commit_since_a_cut_off_undo_is_not_moved_aside_without_force",),
    ),
)
