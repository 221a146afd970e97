"""The breaks of the store that hosts share, each with the race or refusal that notices."""

from tests.mutations.mutant import Mutant

RACES = "tests/store/test_postgres_races.py"
SUITE = "tests/store/test_postgres.py::TestPostgres"
REFUSALS = "tests/store/test_postgres_refusals.py"
PASSWORDS = "tests/store/test_postgres_passwords.py"
NOWHERE = "test_a_password_is_in_no_process_list_no_file_and_no_command_and_commands_below_ask_the_supervisor"
CREDENTIALS = "store/credentials.py"
COPY, COPIES = "operations/transfer/store_copy.py", "tests/store/test_store_copy.py"
STANDBY = "tests/store/test_postgres_standby.py"
CUTS = "tests/store/test_postgres_cuts.py"
COMMITS, LEASES, QUERIES, DATABASE = (
    f"store/postgres/{name}.py" for name in ("commits", "leases", "queries", "database")
)

MUTANTS = (
    Mutant(
        "postgres: a renewal that reaches nobody is an error",
        LEASES, "contextlib.suppress(Unanswered, StoreUnreachable)", "contextlib.suppress(Unanswered)",
        (f"{CUTS}::test_a_renewal_that_reaches_nobody_says_nothing_of_a_lease_that_is_not_over",),
    ),
    Mutant(
        "postgres: a new connection that is lost on the way is a fault of ours",
        DATABASE, "not self.reading and self._first_row(connection, schema.ORIGIN) != recorded",
        "not self.reading and connection.execute(schema.ORIGIN).fetchone() != recorded",
        (f"{CUTS}::test_an_open_that_is_cut_at_any_message_is_one_clear_error[lost]",),
    ),
    Mutant(
        "postgres: an earlier try that made the run is taken for somebody else",
        "store/postgres/store.py", "if found is not None and found[0] == opened.run and not was_first:", "if False:",
        (f"{CUTS}::test_what_is_cut_at_any_message_is_done_once[unanswered-create]",),
    ),
    Mutant(
        "postgres: an append that does not hold its lease's row",
        COMMITS, " FOR SHARE OF l\n", "\n",
        (f"{RACES}::test_no_event_of_an_old_epoch_lands_after_the_taker_has_read",),
    ),
    Mutant(
        "postgres: an append fenced by its epoch alone",
        COMMITS, "WHERE l.session = %(me)s FOR", "WHERE %(me)s::uuid IS NOT NULL FOR",
        (f"{RACES}::test_an_epoch_given_twice_is_fenced_by_its_session",),
    ),
    Mutant(
        "postgres: a late append that passes the door",
        COMMITS, " AND l.turn = b.turn\n", "\n",
        (f"{RACES}::test_however_connections_are_cut_a_writer_knows_its_own_journal[late]",),
    ),
    Mutant(
        "postgres: a look without shutting the door",
        COMMITS, "                self._shut_door(lease)\n", "",
        (f"{RACES}::test_an_append_that_arrives_after_its_writer_has_looked_is_refused",),
    ),
    Mutant(
        "postgres: a lost answer that is taken for a failure",
        COMMITS, "                if self._is_there(pending):\n", "                if False:\n",
        (f"{RACES}::test_however_connections_are_cut_a_writer_knows_its_own_journal[unanswered]",),
    ),
    Mutant(
        "postgres: an append after any event",
        COMMITS, "AND e.seq = h.after)", "AND e.seq <= h.after)",
        (f"{SUITE}::test_an_unexpected_number_is_refused_and_nothing_is_written",),
    ),
    Mutant(
        "postgres: numbers shown before smaller ones are decided",
        QUERIES, "pg_snapshot_xmin(", "pg_snapshot_xmax(",
        (f"{SUITE}::test_a_subscriber_hears_every_event_once_and_in_order_however_slowly_they_are_committed",),
    ),
    Mutant(
        "postgres: a cursor at the bound",
        QUERIES, "SELECT coalesce(max(n), 0) FROM events WHERE n < {STABLE}", "SELECT {STABLE} - 1",
        (f"{SUITE}::test_changes_name_the_runs_with_new_events_and_no_others",),
    ),
    Mutant(
        "postgres: a holder judged by the server's clock",
        LEASES, "            if self._watch.look(row, seen) < seen.ttl_s:\n                return None\n",
        "            if not seen.looks_over:\n                return None\n",
        (f"{RACES}::test_the_servers_clock_takes_no_run_from_a_living_holder",),
    ),
    Mutant(
        "postgres: a claim of what somebody else claimed meanwhile",
        LEASES, "WHERE run = %(run)s AND epoch = %(epoch)s AND session IS NOT DISTINCT FROM %(session)s\n", "WHERE run = %(run)s\n",
        (f"{RACES}::test_of_claims_on_many_hosts_at_once_one_wins",),
    ),
    Mutant(
        "postgres: a claim by silence without the session's lock",
        LEASES, "WHERE id = %s FOR UPDATE", "WHERE id = %s",
        (f"{RACES}::test_a_claim_by_silence_and_a_renewal_are_not_both_granted",),
    ),
    Mutant(
        "postgres: a renewal in one statement",
        LEASES, "UPDATE sessions SET beats = beats + 1, uptime_s = {uptime}, renewed_at = clock_timestamp() WHERE id = '{me}';\nSELECT",
        "WITH u AS (UPDATE sessions SET beats = beats + 1, uptime_s = {uptime}, renewed_at = clock_timestamp() WHERE id = '{me}')\nSELECT",
        (f"{RACES}::test_a_claim_by_silence_and_a_renewal_are_not_both_granted",),
    ),
    Mutant(
        "postgres: a lease that counts from the answer to its renewal",
        LEASES, "max(lease.deadline_s, sent_s + lease.ttl_s", "max(lease.deadline_s, boottime_s() + lease.ttl_s",
        (f"{RACES}::test_a_lease_counts_from_when_its_renewal_was_sent",),
    ),
    Mutant(
        "postgres: a claim forgotten because its answer was lost",
        LEASES, "                lost.append(True)\n", "",
        (f"{RACES}::test_a_claim_whose_answer_is_lost_is_looked_for[unanswered]",),
    ),
    Mutant(
        "postgres: a proof of the last holder's death only",
        LEASES, "%(is_proof)s AND proven >= epoch - 1 THEN", "%(is_proof)s THEN",
        (f"{RACES}::test_who_was_not_proven_dead_stays_so_for_later_takers",),
    ),
    Mutant(
        "postgres: no quiet after a silent holder",
        LEASES, "        if taken[1] < lease.epoch - 1:\n", "        if False:\n",
        (f"{RACES}::test_who_was_not_proven_dead_stays_so_for_later_takers",),
    ),
    Mutant(
        "postgres: a release in the middle of an act",
        LEASES, "if lease.acting() or (lease.row", "if (lease.row",
        (f"{RACES}::test_a_release_waits_for_the_act_in_progress_and_then_lets_other_hosts_in",),
    ),
    Mutant(
        "postgres: a release that other hosts are not told of",
        LEASES, "            if not lease.lost:\n                self._db.try_to(_RELEASE", "            if False:\n                self._db.try_to(_RELEASE",
        (f"{RACES}::test_a_release_lets_another_host_in_at_once",),
    ),
    Mutant(
        "postgres: a death that the lock file does not prove",
        LEASES, "        mine = locks.read_session(path) == seen.session.bytes and seen.host == self._host.id\n", "        mine = True\n",
        (f"{RACES}::test_a_copy_of_the_folder_on_another_machine_proves_nobody_dead",),
    ),
    Mutant(
        "postgres: an act long after its intent that asks nobody",
        "store/postgres/lease.py", " and now_s <= self.vouched_s + self._leases.timing.act_within_s\n", "\n",
        (f"{RACES}::test_an_act_long_after_its_intent_asks_first_whether_the_run_is_still_its",),
    ),
    Mutant(
        "postgres: a silent server that is waited for",
        "store/postgres/database.py", "                        _shut(fd)\n", "                        pass\n",
        (f"{RACES}::test_a_silent_server_is_given_up_and_asked_again_until_it_answers",),
    ),
    Mutant(
        "postgres: a server of another timeline that is trusted",
        "store/postgres/database.py", "        if not self.reading and self._first_row(connection, schema.ORIGIN) != recorded:\n", "        if False:\n",
        (f"{REFUSALS}::test_a_store_on_another_server_is_not_written_until_a_person_accepts",),
    ),
    Mutant(
        "postgres: a command that runs on when its lease is over",
        "store/postgres/store.py", "        if over is not None and not over.lost:\n", "        if False:\n",
        ("tests/store/test_postgres_outages.py::test_a_command_is_stopped_before_its_run_can_be_overtaken_and_goes_on_when_the_store_answers",),
    ),
    Mutant(
        "postgres: numbers from a sequence",
        COMMITS, '"(SELECT base FROM meta) + (pg_current_xact_id()::text::bigint << 20)"',
        "\"(nextval(pg_get_serial_sequence('requests', 'id')) * 100000)\"",
        (f"{SUITE}::test_a_subscriber_hears_every_event_once_and_in_order_however_slowly_they_are_committed",),
    ),
    Mutant(
        "postgres: a claim by one joined statement",
        LEASES, "found = connection.execute(_CLAIM, values).fetchone() if _is_still(connection, seen) else None",
        'found = connection.execute(_CLAIM.replace("RETURNING", "AND EXISTS (SELECT 1 FROM sessions s WHERE s.id = %(session)s"'
        ' " AND s.beats = %(beats)s) RETURNING"), {**values, "beats": seen.beats}).fetchone()',
        (f"{RACES}::test_a_claim_by_silence_and_a_renewal_are_not_both_granted",),
    ),
    Mutant(
        "postgres: a standby that hangs robs the holder",
        LEASES, "WHERE id = %s FOR UPDATE", "WHERE id = %s",
        (f"{STANDBY}::test_a_standby_that_hangs_robs_no_healthy_holder",),
    ),
    Mutant(
        "postgres: a commit that did not wait for its standby, taken for acknowledged",
        DATABASE, "            if id(connection) in self._not_waited:\n", "            if False:\n",
        tuple(f"{STANDBY}::test_a_commit_that_did_not_wait_for_its_standby_is_not_acknowledged[{what}]" for what in ("append", "claim", "request")),
    ),
    Mutant(
        "postgres: a heart that stops when the server refuses a renewal",
        LEASES, "        except psycopg.Error as error:  # as a full disk", "        except psycopg.InterfaceError as error:  # as a full disk",
        (f"{RACES}::test_a_heart_goes_on_when_the_server_refuses_a_renewal",),
    ),
    Mutant(
        "postgres: an act that begins however late the lease was confirmed",
        "store/postgres/lease.py", "while not self._is_fresh():", "if not self._is_fresh():",
        (f"{RACES}::test_an_act_begins_soon_after_the_lease_was_asked_for_however_late_the_answer_comes",),
    ),
    Mutant(
        "postgres: a run held by a claim that failed",
        LEASES, "            lease.released = True\n            self.let_go(lease)\n            raise\n", "            raise\n",
        (f"{RACES}::test_a_claim_that_fails_in_its_quiet_time_holds_nothing",),
    ),
    Mutant(
        "postgres: a stopped holder on this host that is looked at once",
        LEASES, "            if moved or not seen.looks_over:\n", "            if True:\n",
        (f"{RACES}::test_a_stopped_holder_on_the_same_host_is_overtaken_by_one_start",),
    ),
    Mutant(
        "postgres: an append given up for a deadlock",
        COMMITS, "        except (Unanswered, StoreUnreachable, *AGAIN):\n", "        except (Unanswered, StoreUnreachable):\n",
        (f"{RACES}::test_an_append_that_the_server_chose_to_fail_for_a_deadlock_is_sent_again",),
    ),
    Mutant(
        "postgres: a document that a cut connection keeps from being held",
        "store/postgres/shelf.py", "database.repeat(lambda: _taken(database, name, deadline_s))", "_taken(database, name, deadline_s)",
        (f"{RACES}::test_a_document_is_held_although_the_connection_is_cut_on_the_way",),
    ),
    Mutant(
        "postgres: a name that is free when the server sees that a connection is closed",
        "store/postgres/shelf.py", "            connection.execute(_LET_GO)\n", "            pass\n",
        (f"{RACES}::test_what_is_let_go_of_is_free_before_the_server_sees_that_its_connection_is_closed",),
    ),
    Mutant(
        "postgres: the isolation that the database prefers",
        DATABASE, ", set_config('default_transaction_isolation', 'read committed', false)\n", "\n",
        (f"{RACES}::test_a_database_that_prefers_another_isolation_changes_nothing",),
    ),
    Mutant(
        "postgres: a password in the command line of a process that lives on",
        CREDENTIALS, "    if not any(_is_suspect(word) for word in (store, *words[:end])):\n", "    if True:\n",
        (f"{PASSWORDS}::{NOWHERE}[option]", f"{PASSWORDS}::{NOWHERE}[variable]"),
    ),
    Mutant(
        "postgres: PGPASSWORD of the store in an agent's environment",
        CREDENTIALS, "if name != PASSWORD or value not in secrets", "if name != PASSWORD or value in secrets",
        (f"{PASSWORDS}::{NOWHERE}[PGPASSWORD]",),
    ),
    Mutant(
        "postgres: a command below an agent that opens the store itself",
        "supervisor/client/relay.py", "command_of(words) not in COMMANDS", "True",
        (f"{PASSWORDS}::{NOWHERE}[variable]",),
    ),
    Mutant(
        "postgres: a process of ours that does not get the password",
        CREDENTIALS, "    if not _known:\n", "    if True:\n",
        (f"{PASSWORDS}::test_another_process_of_outlast_gets_the_password_through_a_pipe",),
    ),
    Mutant(
        "postgres: a URL that is shown although a part of it may be a password",
        "store/postgres/address.py", "    if not _is_plain(hosts, database, options):\n", "    if False:\n",
        (f"{PASSWORDS}::test_a_password_that_is_not_escaped_is_not_shown",),
    ),
    Mutant(
        "postgres: a copied run that goes on in both stores",
        COPY, '            requests.take(journal, requests.own_request(journal, "handoff"))\n', "",
        (f"{COPIES}::test_a_copy_that_was_cut_off_is_ended_by_the_same_again",),
    ),
    Mutant(
        "postgres: a copied run whose attempts are numbered from one again",
        COPY, "        for _ in range(found.epoch, epoch):\n", "        for _ in range(0):\n",
        (f"{COPIES}::test_a_store_with_a_run_that_is_worked_on_is_not_copied",),
    ),
    Mutant(
        "postgres: a copy of a run that is worked on",
        COPY, "        self._refuse_live(every)\n", "",
        (f"{COPIES}::test_a_store_with_a_run_that_is_worked_on_is_not_copied",),
    ),
    Mutant(
        "postgres: a person's role that may write journals",
        "store/postgres/roles.py", 'f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA outlast TO {HOST}"',
        'f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA outlast TO {HOST}, {PERSON}"',
        (f"{REFUSALS}::test_each_role_may_do_what_it_is_for_and_no_more",),
    ),
    Mutant(
        "postgres: a head that is trusted although it is damaged",
        "store/postgres/examination.py", " or not self._is_same(", " or not bytes(",
        ("tests/store/test_postgres_doctor.py::test_whatever_a_row_says_wrongly_is_found_and_what_events_prove_is_put_right",),
    ),
    Mutant(
        "postgres: a run gone on with where its files are not",
        "runs/opening/admission.py", 'started.host_id not in ("", here)', "False",
        (f"{REFUSALS}::test_a_run_of_another_host_is_not_gone_on_with_here",),
    ),
)  # fmt: skip
