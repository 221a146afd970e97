"""The breaks of what sees an outward call in another form, and of what masks secrets in one."""

from tests.mutations.mutant import Mutant

CORPUS = "tests/agents/outward/test_corpus.py::test_every_command_of_the_corpus_has_its_class"
COMMANDS = "tests/core/test_passwords.py"
SHELL = "tests/agents/outward/test_shim_decisions.py"
FORMS = "tests/agents/outward/test_forms.py"
SHIMS = "tests/agents/outward/test_shims.py"

MUTANTS = (
    Mutant(
        "a far command that is not on the list, local",
        "agents/outward/targets/remote_words.py",
        "return look is not None and ",
        "return look is None or ",
        (CORPUS,),
    ),
    Mutant(
        "a flag that a later one takes back, still harmless",
        "agents/outward/rules.py",
        "harmless = set() if _takes_back(rule, word, words[at : at + 1]) else harmless | given",
        "harmless = harmless | given",
        (CORPUS,),
    ),
    Mutant(
        "an alias below an agent, let through by its shim",
        "agents/outward/shims.py",
        '        [A-Za-z]*) {client} "$@" ;;\n',
        "",
        (f"{FORMS}::test_a_first_word_that_is_no_command_goes_to_the_client",),
    ),
    Mutant(
        "a second word that acts, let through by a shim",
        "agents/outward/inside.py",
        'outside = {f"{first}:{second}" for first, second in pairs}',
        "outside = set[str]()",
        (SHELL,),
    ),
    Mutant(
        "an alias, a command that stays inside for a shim",
        "agents/outward/inside.py",
        "    if commands is not None:",
        "    if commands is not None and False:",
        (SHELL,),
    ),
    Mutant(
        "an option with a value, a word of its own for a shim",
        "agents/outward/inside.py",
        "reduce(frozenset.__and__, sets)",
        "reduce(frozenset.__or__, sets)",
        (SHELL,),
    ),
    Mutant(
        "a .config/curlrc that sends, not looked for by a shim",
        "agents/outward/inside.py",
        '(".curlrc", "curlrc", ".config/curlrc")',
        '(".curlrc", "curlrc")',
        (f"{SHELL}::test_a_file_of_options_makes_every_call_one_to_ask_about",),
    ),
    Mutant(
        "a .config/curlrc that sends, local",
        "agents/outward/targets/http.py",
        'if not given.get("XDG_CONFIG_HOME"):',
        "if False:",
        (f"{FORMS}::test_a_file_of_options_that_sends_makes_every_call_outward",),
    ),
    Mutant(
        "a file of options that sends, not looked for by a shim",
        "agents/outward/shims.py",
        "if files := inside.files(program, own_home() if home is None else home):",
        'if files := inside.files(f"no {program}", ""):',
        (SHELL,),
    ),
    Mutant(
        "the home that the system knows, not looked in by a shim",
        "agents/outward/inside.py",
        'own = f"${{HOME-{escaped}}}"',
        'own = "${HOME:-/nowhere}"',
        (f"{SHELL}::test_where_no_variable_names_a_home_the_users_own_one_counts",),
    ),
    Mutant(
        "the home that the system knows, not told by a shim",
        "supervisor/client/shim.py",
        'return named if program == "git" or "HOME" in named else',
        "return named if True else",
        (
            "tests/supervisor/test_shims.py::test_without_a_variable_that_names_a_home_the_systems_one_counts_for_all_but_git",
        ),
    ),
    Mutant(
        "a shim that writes over its caller's variables",
        "agents/outward/shims.py",
        'f"outlast_real={real} outlast_behind=\\n"',
        'f"word= outlast_real={real} outlast_behind=\\n"',
        (f"{SHIMS}::test_the_program_has_the_variables_of_its_caller",),
    ),
    Mutant(
        "a script by the name of a command that another package manager has, not looked for",
        "agents/outward/shell/tasks.py",
        "    if command in OWN:\n",
        "    if command in COMMANDS:\n",
        ("tests/agents/outward/test_tasks.py",),
    ),
    Mutant(
        "an alias by the name of a command, not looked for",
        "agents/outward/shell/aliases.py",
        " - _GIVEN_AWAY.get(name, frozenset())",
        "",
        (f"{FORMS}::test_another_form_of_an_outward_call_is_outward",),
    ),
    Mutant(
        "a method that changes something, let through by a shim",
        "agents/outward/shims.py",
        '        X:*) {client} "$@" ;;\n',
        "        X:*) outlast_first= ;;\n",
        (SHELL,),
    ),
    Mutant(
        "a query that lies in a file, not read",
        "agents/outward/targets/http.py",
        'if name == "query" and option == "field" and value.startswith("@"):',
        "if False:",
        (f"{FORMS}::test_another_form_of_an_outward_call_is_outward",),
    ),
    Mutant(
        "a password among the words of a program, shown",
        "core/secrets/__init__.py",
        "    text = _of_commands(text, found)\n",
        "",
        (f"{COMMANDS}::test_what_a_program_is_given_as_a_password_is_masked_and_all_else_stays",),
    ),
    Mutant(
        "a password in a list of words, shown",
        "core/secrets/__init__.py",
        "_STRING.sub(masked, _WORDS.sub(of_command, data))",
        "_STRING.sub(masked, data)",
        (f"{COMMANDS}::test_in_a_list_of_words_the_value_of_an_option_is_masked_too",),
    ),
)
