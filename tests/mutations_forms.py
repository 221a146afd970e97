"""Breaks of what sees an outward call in another form, and of what masks secrets in one."""

from tests.mutations import Mutant

CORPUS = "tests/agents/outward/test_corpus.py::test_every_command_of_the_corpus_has_its_class"
COMMANDS = "tests/core/test_passwords.py"
FORMS = "tests/agents/outward/test_forms.py"

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
        "a query that lies in a file, not read",
        "agents/outward/targets/http.py",
        'if name == "query" and option == "field" and value.startswith("@"):',
        "if False:",
        (f"{FORMS}::test_another_form_of_an_outward_call_is_outward",),
    ),
    Mutant(
        "a password among the words of a program, shown",
        "core/secrets.py",
        "    text = _of_commands(text, found)\n",
        "",
        (f"{COMMANDS}::test_what_a_program_is_given_as_a_password_is_masked_and_all_else_stays",),
    ),
    Mutant(
        "a password in a list of words, shown",
        "core/secrets.py",
        "_STRING.sub(masked, _WORDS.sub(of_command, data))",
        "_STRING.sub(masked, data)",
        (f"{COMMANDS}::test_in_a_list_of_words_the_value_of_an_option_is_masked_too",),
    ),
)
