"""The breaks of what tells two calls that reach outside apart: verb, target and all that the world receives."""

from tests.mutations.mutant import Mutant

CONTENTS = "tests/agents/outward/test_contents.py"
GUARD = "tests/supervisor/test_guard_contents.py"
GUARDED = "tests/supervisor/test_guard.py"
IDENTITY = "tests/supervisor/test_call_identity.py"
OTHERS = "tests/supervisor/test_other_calls.py"

MUTANTS = (
    Mutant(
        "a deploy whose words alone say that it is the same one",
        "agents/outward/targets/arguments.py",
        "{} if whole or rule.whole else",
        "{} if True else",
        (f"{GUARD}::test_what_its_words_do_not_hold_is_asked_about_and_not_taken_for_done",),
    ),
    Mutant(
        "files that the words name, left out",
        "agents/outward/targets/arguments.py",
        "files=files(call), **rest",
        'files=b"", **rest',
        (f"{CONTENTS}::test_what_lies_in_a_file_that_the_words_name_is_part_of_the_content",),
    ),
    Mutant(
        "variables that lead elsewhere, left out",
        "agents/outward/targets/arguments.py",
        "for name in STEERING if",
        "for name in () if",
        (f"{CONTENTS}::test_what_is_not_known_to_be_the_same_is_never_taken_for_it",),
    ),
    Mutant(
        "headers that say nothing",
        "agents/outward/targets/http.py",
        '        request.headers.append(value)\n    elif name == "url-query":\n',
        '    elif name == "url-query":\n',
        (f"{GUARD}::test_a_request_that_asks_for_something_else_is_made",),
    ),
    Mutant(
        "a request of somebody else, taken for the same",
        "agents/outward/content.py",
        " == known and not differ else",
        " == known else",
        (f"{GUARD}::test_a_request_of_somebody_else_or_of_another_try_is_asked_about",),
    ),
    Mutant(
        "a content of an earlier outlast, compared",
        "agents/outward/content.py",
        ' for each in content.split(" ")) if equals',
        ' for each in content.split(" ")) if name',
        (f"{IDENTITY}::test_verb_target_and_content_say_which_call_is_the_same",),
    ),
    Mutant(
        "a push to a remote that lies elsewhere now, taken for done",
        "agents/outward/targets/git.py",
        ", *repository.addresses(remote)]",
        "]",
        (f"{GUARD}::test_a_push_to_another_remote_is_another_push",),
    ),
    Mutant(
        "a remote of which only the last address counts",
        "agents/outward/targets/git_config.py",
        ' if key in ("url", "pushurl") else 1\n',
        " if not key else 1\n",
        (f"{CONTENTS}::test_a_push_is_known_by_where_its_remote_lies",),
    ),
    Mutant(
        "a push that others took the place of, taken for done",
        "supervisor/agent/calls/repeats.py",
        '            if first.another == "free" and history.is_undone(self._journal, effect, first):\n',
        "            if False:\n",
        (f"{GUARD}::test_commits_that_others_took_the_place_of_are_pushed_again",),
    ),
    Mutant(
        "a PUT that a later one took the place of, taken for done",
        "supervisor/agent/calls/repeats.py",
        "        return None if is_undone else",
        "        return None if False else",
        (f"{GUARD}::test_what_another_request_took_the_place_of_is_asked_about",),
    ),
    Mutant(
        "a recorded step that eats a later call",
        "supervisor/agent/calls/repeats.py",
        "        return not steps_on_record(self._journal).isdisjoint(made_below)\n",
        "        return False\n",
        (f"{GUARDED}::test_a_recorded_step_eats_no_later_call_like_one_of_its_own[plain]",),
    ),
    Mutant(
        "a step that is not known below a cleaned environment",
        "supervisor/socket/server.py",
        '        marks = [self._firsts.get(each, "") for each in above]\n',
        "        marks = [mark]\n",
        (f"{GUARDED}::test_a_recorded_step_eats_no_later_call_like_one_of_its_own[cleaned]",),
    ),
    Mutant(
        "a step that is done again and repeats what it did",
        "supervisor/agent/calls/repeats.py",
        " or set(made_below) & set(steps):\n",
        ":\n",
        (f"{GUARDED}::test_a_step_that_failed_and_is_asked_for_again_repeats_nothing",),
    ),
    Mutant(
        "what a guarded command left running, stopped unsaid",
        "supervisor/attempt/watch.py",
        "        return list(BelowUs(self._run.id).find()) if self._guard is not None else []\n",
        "        return []\n",
        (f"{GUARDED}::test_what_a_command_leaves_in_the_background_is_waited_for",),
    ),
    Mutant(
        "what ran on too long, done",
        "supervisor/attempt/watch.py",
        "            self._guard.note_left([proc.describe(each.pid) for each in left[:LEFT_NAMED_MAX]])\n",
        "            pass\n",
        (f"{GUARDED}::test_what_runs_on_too_long_is_named_and_the_run_is_not_done",),
    ),
    Mutant(
        "several requests of one curl, taken for one",
        "agents/outward/targets/http.py",
        "    if request.globs:\n",
        "    if False:\n",
        (
            f"{CONTENTS}::test_several_requests_of_one_curl_are_not_sure_by_its_exit_code",
            f"{GUARD}::test_several_requests_of_which_one_failed_are_not_taken_for_done",
        ),
    ),
    Mutant(
        "several requests, taken for done by one exit code",
        "agents/outward/targets/body.py",
        '{"each": None} if sent.one_of_many else {}',
        "{}",
        (f"{GUARD}::test_several_requests_of_which_one_failed_are_not_taken_for_done",),
    ),
    Mutant(
        "another spelling of an address, another target",
        "agents/outward/targets/http.py",
        '    host = hosts.plain(parts.hostname or "")\n',
        '    host = parts.hostname or ""\n',
        (f"{GUARD}::test_another_spelling_of_an_address_is_the_same_call",),
    ),
    Mutant(
        "plain words that are no content",
        "agents/outward/targets/arguments.py",
        "    if call.fed or not all(word.known for word in call.words):\n",
        "    if True:\n",
        (f"{OTHERS}::test_plain_words_tell_what_is_sent_and_can_be_named_another",),
    ),
    Mutant(
        "an edit whose target names the act",
        "agents/outward/targets/forge.py",
        "NAMED if verb in _MANY else None",
        "None",
        (f"{OTHERS}::test_plain_words_tell_what_is_sent_and_can_be_named_another",),
    ),
    Mutant(
        "a call that differs only in who asks, named another and held all the same",
        "acts/another.py",
        'if nearest(first.outward, [each])[0] == "named"',
        "if each.content not in {one.content for one in first.outward}",
        (f"{OTHERS}::test_another_user_of_the_same_body_is_held_and_its_agent_is_told_why",),
    ),
)
