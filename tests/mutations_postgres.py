"""Breaks of the store that hosts share, each with the race or refusal that notices. The list and its form: `mutations.py`."""

from tests.mutations import Mutant

RACES = "tests/store/test_postgres_races.py"
SUITE = "tests/store/test_postgres.py::TestPostgres"
REFUSALS = "tests/store/test_postgres_refusals.py"
COMMITS, LEASES, QUERIES = (f"store/postgres/{name}.py" for name in ("commits", "leases", "queries"))

MUTANTS = (
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
        LEASES, "            if not lease.lost:\n", "            if False:\n",
        (f"{RACES}::test_a_release_lets_another_host_in_at_once",),
    ),
    Mutant(
        "postgres: a death that the lock file does not prove",
        LEASES, "        mine = locks.read_session(path) == seen.session.bytes and seen.host == self._host.id\n", "        mine = True\n",
        (f"{RACES}::test_a_copy_of_the_folder_on_another_machine_proves_nobody_dead",),
    ),
    Mutant(
        "postgres: an act long after its intent that asks nobody",
        "store/postgres/lease.py", " or now_s > self.vouched_s + leases.timing.act_within_s:", ":",
        (f"{RACES}::test_an_act_long_after_its_intent_asks_first_whether_the_run_is_still_its",),
    ),
    Mutant(
        "postgres: a silent server that is waited for",
        "store/postgres/database.py", "                        _shut(fd)\n", "                        pass\n",
        (f"{RACES}::test_a_silent_server_is_given_up_and_asked_again_until_it_answers",),
    ),
    Mutant(
        "postgres: a server of another timeline that is trusted",
        "store/postgres/database.py", "        if found != recorded and not self.reading:\n", "        if False:\n",
        (f"{REFUSALS}::test_a_store_on_another_server_is_not_written_until_a_person_accepts",),
    ),
    Mutant(
        "postgres: a command that runs on when its lease is over",
        "store/postgres/store.py", "        if over is not None and not over.lost:\n", "        if False:\n",
        ("tests/store/test_postgres_outages.py::test_a_command_is_stopped_before_its_run_can_be_overtaken_and_goes_on_when_the_store_answers",),
    ),
    Mutant(
        "postgres: a run gone on with where its files are not",
        "runs/opening/admission.py", 'started.host_id not in ("", here)', "False",
        (f"{REFUSALS}::test_a_run_of_another_host_is_not_gone_on_with_here",),
    ),
)  # fmt: skip
