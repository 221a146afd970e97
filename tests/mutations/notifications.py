"""The breaks of notices, their links and their settings."""

from tests.mutations.mutant import Mutant

DELIVERY = "tests/notifications/test_delivery.py"
CHANNELS = "tests/notifications/test_channels.py"
LINKS = "tests/notifications/test_links.py"
PAGE = "tests/web/test_link.py"
TOLD = "tests/supervisor/test_notify.py"
SETTINGS = "tests/cli/test_notify.py"

MUTANTS = (
    Mutant(
        "a cause that is told again when it was sent before",
        "notifications/outbox.py",
        "    if mark.exists():\n        return False\n",
        "    mark.unlink(missing_ok=True)\n",
        (f"{DELIVERY}::test_a_cause_is_told_once_also_by_another_process",),
    ),
    Mutant(
        "what was begun and cut off, sent again",
        "notifications/delivery.py",
        "words=CUT_OFF)",
        "words=CUT_OFF, again=True)",
        (f"{DELIVERY}::test_what_was_cut_off_while_it_was_sent_is_said_and_not_repeated",),
    ),
    Mutant(
        "a notice that is sent before it is on record",
        "notifications/delivery.py",
        '            each.record(Step(channel=channel.name, did="begun", at=datetime.now(UTC)))\n',
        "            pass\n",
        (f"{DELIVERY}::test_what_was_cut_off_while_it_was_sent_is_said_and_not_repeated",),
    ),
    Mutant(
        "quiet hours that hold nothing",
        "notifications/delivery.py",
        "if hours is None or not hours.holds(_here()) or",
        "if True or hours is None or",
        (f"{DELIVERY}::test_without_urgent_everything_is_held",),
    ),
    Mutant(
        "a redirect that takes the message to another host",
        "notifications/post.py",
        "if there.hostname != here.hostname or not same:",
        "if False:",
        (f"{CHANNELS}::test_no_redirect_leads_to_another_host",),
    ),
    Mutant(
        "a notice with the secrets of its run",
        "notifications/notice.py",
        "    return short(mask(str(text))[0], chars_max)",
        "    return short(str(text), chars_max)",
        (f"{CHANNELS}::test_nothing_that_is_sent_has_a_secret_of_the_run",),
    ),
    Mutant(
        "a token that anybody signs",
        "notifications/links.py",
        "if not hmac.compare_digest(signature, self._signature(body)):",
        "if len(signature) != _SIGNATURE_BYTES:",
        (f"{LINKS}::test_no_changed_token_is_one",),
    ),
    Mutant(
        "a token for ever",
        "notifications/links.py",
        "        if now >= datetime.fromtimestamp(found.until, UTC):",
        "        if False:",
        (f"{LINKS}::test_it_expires_and_with_its_question_if_that_is_earlier",),
    ),
    Mutant(
        "a token for whatever effect its form names",
        "web/link.py",
        '_CHOSEN: dict[str, tuple[str, ...]] = {"settle": ("finding",),',
        '_CHOSEN: dict[str, tuple[str, ...]] = {"settle": ("finding", "effect"),',
        (f"{PAGE}::test_a_token_is_good_for_its_own_effect_alone",),
    ),
    Mutant(
        "a link that is pressed as often as one likes",
        "web/link.py",
        '    return f"link-{found.nonce}"',
        '    return f"link-{datetime.now(UTC).timestamp()}"',
        (f"{PAGE}::test_the_outcome_stays_after_a_restart_of_the_page",),
    ),
    Mutant(
        "a link that acts when it is looked at",
        "web/link.py",
        '    if request.method != "POST":\n',
        '    if request.method != "POST":\n        perform.do(opened.store, _wish(found, {"finding": "happened"}), by)\n',
        (f"{PAGE}::test_looking_does_nothing_however_often",),
    ),
    Mutant(
        "a link of another form, pressed",
        "web/link.py",
        '    site.guard.check_csrf(given.get("csrf", ""), _form(token))\n',
        "",
        (f"{PAGE}::test_the_form_of_one_link_presses_no_other",),
    ),
    Mutant(
        "a link that lets in to the page",
        "web/http/guard.py",
        "link = request.segments[:1] == (LINK,) and len(request.segments) == 2",
        "link = request.segments[:1] == (LINK,) or LINK in request.target",
        (f"{PAGE}::test_a_link_is_no_login",),
    ),
    Mutant(
        "an act from inside of a run, done",
        "web/app.py",
        "            if within := approve.run_around(opened.store, pid):",
        "            if within := '':",
        (f"{PAGE}::test_what_runs_inside_of_a_run_reaches_no_act_but_stopping",),
    ),
    Mutant(
        "an act of a process that ended while the page looked at it, done",
        "web/app.py",
        "found is None or set(found) - set(peers.holders(connection.peer, connection.here) or ())",
        "found is None",
        (f"{PAGE}::test_who_ends_while_the_page_looks_at_it_is_refused",),
    ),
    Mutant(
        "a token for a process inside of a run",
        "notifications/delivery.py",
        "made = self._links if self._tokens else None",
        "made = self._links",
        (f"{TOLD}::test_a_notice_of_a_run_inside_of_a_run_has_no_token",),
    ),
    Mutant(
        "a repository's file that names a channel",
        "settings.py",
        'or a file of mode 600 that holds it", _ACTS, read=addresses.url_or_file),\n    Key("notify_ntfy_token"',
        'or a file of mode 600 that holds it", _MAY, read=addresses.url_or_file),\n    Key("notify_ntfy_token"',
        (f"{SETTINGS}::test_the_file_of_a_repository_neither_names_nor_learns_where_notices_go",),
    ),
    Mutant(
        "a repository's file that says where links lead",
        "settings.py",
        'as `ui --url`", _ACTS,',
        'as `ui --url`", _MAY,',
        (f"{SETTINGS}::test_the_file_of_a_repository_neither_names_nor_learns_where_notices_go",),
    ),
    Mutant(
        "all notices are taken at once",
        "notifications/outbox.py",
        "            if len(found) == TAKEN_MAX:\n",
        "            if False:\n",
        (
            "tests/notifications/test_delivery.py::test_more_notices_than_a_process_may_have_files_open_all_arrive",
        ),
    ),
)
