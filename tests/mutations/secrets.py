"""The breaks of what looks for keys in untracked texts."""

from tests.mutations.mutant import Mutant

CONTENTS = "tests/workspace/test_secret_contents.py"
TEXTS = "tests/workspace/test_secret_texts.py"
SEARCH = "workspace/secret_texts.py"
FILES = "workspace/capture/files.py"
PACKS = "workspace/git/packs.py"

MUTANTS = (
    Mutant(
        "secret texts: a small file that is not looked into",
        PACKS,
        "        if look is not None:\n            look(data, True)\n",
        "",
        (f"{CONTENTS}::test_a_text_with_a_key_is_kept_apart_and_comes_back_when_asked",),
    ),
    Mutant(
        "secret texts: a large file whose end is not looked into",
        PACKS,
        "look(chunk, left == 0)",
        "look(chunk, False)",
        (f"{CONTENTS}::test_nothing_of_a_large_text_with_a_key_stays_in_the_repository",),
    ),
    Mutant(
        "secret texts: a refused file whose beginning stays in the pack",
        PACKS,
        "except (Moving, Refused, Unreadable):",
        "except (Moving, Unreadable):",
        (f"{CONTENTS}::test_nothing_of_a_large_text_with_a_key_stays_in_the_repository",),
    ),
    Mutant(
        "secret texts: a tracked file that is kept apart",
        FILES,
        "            if path in tracked:\n                self._file(path, key.in_base)\n                continue\n",
        "",
        (f"{CONTENTS}::test_a_tracked_text_is_saved_whatever_it_holds",),
    ),
    Mutant(
        "secret texts: a text that got a key stays in the saves as it was",
        FILES,
        "            self._drop(path)\n            if self._keep_apart(path, key.file_stat):\n",
        "            if self._keep_apart(path, key.file_stat):\n",
        (f"{CONTENTS}::test_a_file_that_gets_a_key_leaves_the_saves_until_the_key_is_gone",),
    ),
    Mutant(
        "secret texts: what hints name is read and forgotten",
        FILES,
        "                self._file(path, self._is_in_base(path))\n        self._sort_keys()\n",
        "                self._file(path, self._is_in_base(path))\n",
        (f"{CONTENTS}::test_a_file_that_gets_a_key_leaves_the_saves_until_the_key_is_gone",),
    ),
    Mutant(
        "secret texts: the next save that goes by hints forgets the kind",
        "workspace/capture/hints.py",
        'rules.apart_kind(left.why) or ""',
        '""',
        (f"{CONTENTS}::test_a_file_that_gets_a_key_leaves_the_saves_until_the_key_is_gone",),
    ),
    Mutant(
        "secret texts: what a restore writes over goes into the repository",
        "workspace/capture/special/secrets.py",
        "(kind := secret_files.kind_of(root + path, path)) is not None",
        "(kind := secret_files.kind_of(root + path, path)) == ''",
        (f"{CONTENTS}::test_an_ignored_text_with_a_key_is_kept_apart_before_a_restore_writes_over_it",),
    ),
    Mutant(
        "secret texts: a save goes on by rules of before",
        "workspace/capture/save.py",
        "known is None or known.not_secret == list(self._saver.limits.not_secret)",
        "True",
        (
            f"{CONTENTS}::test_the_next_save_goes_by_what_is_declared_then_though_no_file_changed",
        ),
    ),
    Mutant(
        "secret texts: what a person declares is looked into all the same",
        "workspace/capture/special/secret_files.py",
        "        if self._is_declared(place):\n            return None\n        search",
        "        search",
        (f"{CONTENTS}::test_what_a_person_declares_no_secret_is_saved",),
    ),
    Mutant(
        "secret texts: the name at the end of a chunk is not seen before a key in the next",
        SEARCH,
        "again = max(0, end - _BEFORE_BYTES)",
        "again = end",
        (f"{TEXTS}::test_a_key_is_found_wherever_a_chunk_ends",),
    ),
    Mutant(
        "secret texts: a word that a chunk cuts is taken for a whole one",
        SEARCH,
        "end = len(data) if last else max(self._begin, len(data) - _AHEAD_BYTES)",
        "end = len(data)",
        (f"{TEXTS}::test_chunks_make_no_difference",),
    ),
    Mutant(
        "secret texts: examples and placeholders count",
        SEARCH,
        "    if len(set(part)) < _DISTINCT_MIN or _PLACEHOLDER.search(lower) or _REPEATED.search(lower):\n        return False\n",
        "",
        (f"{TEXTS}::test_what_agents_and_tools_write_holds_no_key",),
    ),
    Mutant(
        "secret texts: a digest counts as a token",
        SEARCH,
        "if not _is_digest(text, match.start()) and _looks_real(random, match[0]):",
        "if _looks_real(random, match[0]):",
        (f"{TEXTS}::test_what_agents_and_tools_write_holds_no_key",),
    ),
    Mutant(
        "secret texts: binary files are looked into",
        SEARCH,
        'if self._is_first and b"\\0" in chunk[:TEXT_PROBE_BYTES]:',
        "if False:",
        (f"{TEXTS}::test_only_text_is_looked_at",),
    ),
    Mutant(
        "secret texts: a file is looked at without end",
        SEARCH,
        "        self._left -= len(chunk)\n",
        "",
        (f"{TEXTS}::test_a_file_is_looked_at_up_to_a_limit",),
    ),
)  # fmt: skip
