"""How long the supervisor, its guardian, clients and controls wait, and why. What users may choose is in `settings`."""

from dataclasses import dataclass

from outlast import settings
from outlast.processes.timing import Timing as ProcessTiming


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of the supervisor. Objects take one as an argument; `current` is the standard one."""

    # An attempt ends: first save, grace and last calls together stay below the 10 s that containers get.
    first_save_s: float = (
        1.5  # before anything is stopped: a save that is cut short still names what is not in
    )
    stop_grace_s: float = 6.0  # between SIGTERM and SIGKILL: an agent writes its transcript
    left_grace_s: float = 2.0  # the command has ended, so what it left running has nothing to finish
    calls_end_s: float = 2.0  # the programs of these calls are dead: only their record is missing
    person_tick_s: float = 0.05  # a call that waits for a person looks whether its script is gone
    calls_look_s: float = 0.01  # they mostly end within milliseconds
    orphan_grace_s: float = 2.0  # for the command of a call whose script died

    # The command has ended, and a call of it that reaches outside runs on: it may take as long as an upload.
    background_s: float = 60.0
    background_look_s: float = 0.1
    background_tick_s: float = (
        0.5  # the end of what an effect left running wakes us; only an end of the attempt needs a look
    )

    # An attempt begins.
    reap_grace_s: float = 1.0  # for what an earlier attempt left: nobody waits for its work any more
    leaving_supervisor_s: float = (
        2.0  # one that has ended and is on its way out is not "waiting for its next attempt"
    )
    guarded_s: float = 5.0  # the guardian answers at once, or is gone
    guarded_look_s: float = 0.1

    # An attempt is watched.
    piped_tick_s: float = 0.5  # between two looks at requests and the store; signals and ends wake us at once
    terminal_tick_s: float = 0.1  # how soon a Ctrl-Z is noticed: the kernel does not wake us for it
    restart_tick_s: float = (
        0.5  # between two looks while we wait for the next attempt; signals wake us at once
    )
    keeper_tick_s: float = 0.5  # as `piped_tick_s`, for a script
    busy_notice_s: float = 60.0  # between two lines that say that the store is busy
    copy_look_s: float = 10.0  # between two looks at whether what a guarded command's shims run is whole

    # The guardian.
    guardian_look_s: float = (
        1.0  # signals and the supervisor's end wake it; only a stopped supervisor needs a look
    )
    frozen_s: float = (
        12.0  # longer than an attempt takes to end: a supervisor that is stopped leaves signals unanswered
    )
    guardian_grace_s: float = 3.0  # the supervisor is dead, and a next start may be waiting
    guardian_wait_s: float = (
        15.0  # above its grace and killing; after that a start kills the guardian and cleans up
    )
    guardian_save_s: float = 60.0  # a save of a large workspace; above that it is left to the next start

    # Hooks and shims wait 5 s (`client/hook.py`, `client/shim.py`, which import nothing of ours).
    hook_hold_s: float = 4.0  # so that a hook whose agent is being stopped still gets its answer
    shim_waits_s: float = 4.5  # what is found later was refused at the shim
    transcript_behind_s: float = 1.0  # a hook waits so long for what the transcript owes: a slow disk's flush
    transcript_look_s: float = 0.01  # it mostly comes within milliseconds
    outcome_s: float = 0.4  # then the outcome of a local call waits no longer for the end of its beat
    long_call_s: float = (
        1.0  # so long a local call is on record at once when it ends: to do it again costs more
    )
    waking_s: float = (
        30.0  # after so long a sleep of ours, hooks that fell silent meanwhile are believed again
    )

    # The socket and scripts.
    silent_s: float = 10.0  # for a connection to say what it wants
    accept_retry_s: float = 0.05  # after there were no descriptors or threads
    turn_wait_s: float = 30.0  # for what a call of the same name left running when its script died: twice its grace, and killing
    relayed_s: float = 60.0  # for a command that we run for one typed below an agent
    hello_s: float = 10.0  # for the run around a script to answer; else the script gets a run of its own
    left_open_s: float = 2.0  # what a command left running may still print into its record
    keeper_leaving_s: float = 30.0  # for a keeper to record that its script is gone, with a save

    # Output.
    drain_s: float = 1.0  # for what a process that outlived its attempt still holds open
    reader_s: float = 1.0  # between two looks at whether there is still time for a slow reader
    streaming_s: float = 0.05  # after this long without output, the log has all the time
    partial_line_s: float = 2.0  # then the beginning of a line is shown: it is a question, or a progress bar
    status_line_s: float = 1.0  # eyes do not need it oftener
    beat_line_s: float = 0.2  # between two lines on a terminal, after the first ones: more nobody reads
    apart_beat_line_s: float = 60.0  # between two lines where nobody watches a terminal: a log shall not fill
    chronicle_flush_s: float = 1.0  # for lines to be shown and written when an attempt or the run ends
    feed_look_s: float = 0.05  # between two looks at whether a slow reader of JSON lines takes more
    log_poll_s: float = 0.2  # `outlast output --follow`

    # A person or the service.
    start_limit_s: float = 120.0  # a start in the background: a first save of a large workspace takes long
    wake_limit_s: float = 120.0  # the same, by `resume --all`
    tool_limit_s: float = 20.0  # systemctl, loginctl, crontab
    takeover_wait_s: float = (
        24 * 3600.0
    )  # a call under way may take long; the person at the terminal may end the wait
    takeover_look_s: float = 0.2
    kill_request_s: float = 15.0  # above what an attempt takes to end
    killed_s: float = 5.0  # after SIGKILL, for locks to be let go
    kill_grace_s: float = 1.0  # for what is left: it was asked before
    kill_margin_s: float = 5.0  # above what the guardian may take, on a busy machine

    look_every_s: float = 0.05  # between two looks at a process or lock that nobody tells us about

    @property
    def kill_signalled_s(self) -> float:
        """A supervisor that is stopped again and again is killed by its guardian, which then stops what runs and saves."""
        killing_s = ProcessTiming.current().kill_limit_s
        return self.frozen_s + self.guardian_grace_s + killing_s + self.kill_margin_s

    @property
    def kill_saved_s(self) -> float:
        """How long `outlast kill` waits for the save of a guardian."""
        return self.guardian_save_s + self.kill_margin_s

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("supervisor", cls)
