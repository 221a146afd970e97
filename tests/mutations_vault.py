"""The breaks of what brings the user's objects into a vault, and back."""

from tests.mutations import Mutant

WORKSPACE = "tests/workspace"
VAULT = f"{WORKSPACE}/test_vault.py"

MUTANTS = (
    Mutant(
        "loose objects of the user's are not brought in",
        "workspace/vault/bring_in.py",
        "                self._take_loose(pack)\n",
        "",
        (f"{VAULT}::test_whatever_becomes_of_the_repository_every_save_is_whole",),
    ),
    Mutant(
        "a pack of the user's is not linked",
        "workspace/vault/bring_in.py",
        "                self._link_packs()\n",
        "",
        (f"{VAULT}::test_whatever_becomes_of_the_repository_every_save_is_whole",),
    ),
    Mutant(
        "a pack that cannot be linked is not copied",
        "workspace/vault/bring_in.py",
        "            self._copy_needed(tips)\n",
        "            pass\n",
        (f"{VAULT}::test_where_packs_cannot_be_linked_what_is_needed_is_copied",),
    ),
    Mutant(
        "many loose objects are thought to be there",
        "workspace/vault/bring_in.py",
        "        return [oid for oid in oids if oid not in there]\n",
        "        return [oid for oid in oids if oid in there]\n",
        (f"{VAULT}::test_many_loose_objects_come_into_the_pack_of_the_first_save",),
    ),
    Mutant(
        "alternates are not looked at",
        "workspace/vault/sources.py",
        "        todo += [(each, depth + 1) for each in _alternates(Path(real))]\n",
        "",
        (f"{VAULT}::test_the_vault_is_whole_of",),
    ),
    Mutant(
        "a shallow clone's boundary is not noted",
        "workspace/vault/bring_in.py",
        "        self._note_shallow()\n",
        "",
        (f"{VAULT}::test_the_vault_is_whole_of",),
    ),
    Mutant(
        "a repository that moved is not known by its history",
        "workspace/vault/identity.py",
        "        if roots.intersection(each[1].roots):\n",
        "        if roots.intersection(()):\n",
        (f"{VAULT}::test_a_repository_that_moved_finds_its_vault_and_a_copy_gets_its_own",),
    ),
    Mutant(
        "a repository that moved to another file system is not known",
        "workspace/vault/identity.py",
        "    if len(elsewhere) == 1:",
        "    if False:",
        (f"{VAULT}::test_a_repository_that_moved_to_another_file_system_finds_its_vault",),
    ),
    Mutant(
        "a clone takes any vault of its history",
        "workspace/vault/identity.py",
        "    if len(elsewhere) == 1:",
        "    if elsewhere:",
        (f"{VAULT}::test_a_vault_that_another_may_claim_is_not_taken_by_a_clone",),
    ),
    Mutant(
        "a clone takes the vault of a folder that lost its repository",
        "workspace/vault/identity.py",
        "    return all(\n        _is_absent(raw(folder))",
        "    return True or all(\n        _is_absent(raw(folder))",
        (f"{VAULT}::test_a_vault_that_another_may_claim_is_not_taken_by_a_clone",),
    ),
    Mutant(
        "nobody hears what a partial clone lacks",
        "workspace/vault/partial.py",
        "    if not lacking:\n",
        "    if lacking:\n",
        (f"{VAULT}::test_a_save_names_what_a_partial_clone_lacks",),
    ),
    Mutant(
        "a vault is open to others",
        "store/durable.py",
        "        folder.mkdir(mode=0o700, exist_ok=True)\n",
        "        folder.mkdir(exist_ok=True)\n",
        (f"{VAULT}::test_another_user_reads_nothing",),
    ),
    Mutant(
        "settings that run programs come back",
        "workspace/vault/record.py",
        "        if _NAMES.fullmatch(name.lower()) and not _RUNS.search(value):\n",
        "        if name:\n",
        (f"{VAULT}::test_with_the_repository_gone_a_restore_brings_it_back",),
    ),
    Mutant(
        "objects are not given back before HEAD names them",
        "workspace/restore/restore.py",
        "                give_back(place, tips_of(saver.reader(), held))\n                head.put_back",
        "                head.put_back",
        (f"{WORKSPACE}/test_no_side_effects.py::test_every_save_of_a_chain_survives_gc_with_prune_now",),
    ),
    Mutant(
        "saves of before are not brought in",
        "workspace/capture/saver.py",
        "            old_saves.adopt(self._repo, self.private)\n",
        "",
        (f"{VAULT}::test_saves_of_before_are_read_and_gone_on_from",),
    ),
)
