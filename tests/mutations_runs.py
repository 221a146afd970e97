"""The breaks that `tests.mutants` tries of Python runs: which run a start means, leftovers of acts; and of an agent's end."""

from tests.mutations import RUNS, Mutant

MUTANTS = (
    # -- which run a start means
    Mutant(
        "a run that is looked up by its project alone",
        "runs/opening/identity.py",
        "    if terms.project_given:\n",
        "    if terms.project_given or terms.project:\n",
        (f"{RUNS}/test_identity.py::test_whatever_becomes_of_the_repository_the_act_is_done_once",),
    ),
    Mutant(
        "two runs that may be one, and the first is taken",
        "runs/opening/identity.py",
        "    if len(going) > 1:\n",
        "    if len(going) > 2:\n",
        (
            f"{RUNS}/test_identity.py::test_two_runs_that_may_be_one_are_refused_with_both_named_until_one_is_cancelled",
        ),
    ),
    Mutant(
        "a program in another folder that is taken for a new run",
        "runs/opening/identity.py",
        "    if perhaps:\n",
        "    if len(perhaps) > 1:\n",
        (
            f"{RUNS}/test_identity.py::test_a_program_started_in_another_folder_is_refused_until_a_person_chooses",
        ),
    ),
    Mutant(
        "an empty folder called .git that counts as a repository",
        "workspace/git/layout.py",
        "        return Layout(folder, own, _common(own)) if is_git_folder(own) else None\n",
        "        return Layout(folder, own, _common(own))\n",
        (f"{RUNS}/test_identity.py::test_what_a_repository_is_git_and_we_say_alike",),
    ),
)
