"""End a run whose command ended well: run its checks, and raise the error if it is not done."""

from outlast.core.values import Check
from outlast.errors import AgentStopped, ContractError
from outlast.runs.engine.finish import begin_finish, checking, record_done
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.attempt.stop import LeftByPerson, stopped_by
from outlast.supervisor.guardian.signals import StopSignals
from outlast.supervisor.launch.last_launch import known_agent
from outlast.supervisor.launch.launch import Launch

_WRAPPED_UP = "it wrapped up when all but the reserve of its budget was spent"


def finish(run: RunEngine, launch: Launch, signals: StopSignals, *, by_itself: bool) -> None:
    """Record that the run is done. Raises ContractError or UnreachedEffect if it is not.

    Two ends count as done only if the contract has checks and they pass. An agent that wrapped up on outlast's instruction:
    otherwise raises AgentStopped. An agent that a person left at the terminal: otherwise raises LeftByPerson.
    `by_itself`: the command ended without such an instruction.
    """
    if run.state.wrap_beat is not None and not by_itself:
        if not run.contract.checks:
            raise AgentStopped(_WRAPPED_UP, cause="budget", progress=True)
        try:
            _check_and_record(run, signals)
        except ContractError as error:
            raise AgentStopped(f"{_WRAPPED_UP}; not done: {error}", cause="budget", progress=True) from error
    elif launch.interactive and known_agent(launch) is not None:
        if not run.contract.checks:
            raise LeftByPerson
        try:
            _check_and_record(run, signals)
        except ContractError as error:
            raise LeftByPerson(str(error)) from error
    else:
        _check_and_record(run, signals)


def _check_and_record(run: RunEngine, signals: StopSignals) -> None:
    """Run the checks and record the end of the run. A signal ends a check too: raises AgentStopped."""
    result = run.drive(begin_finish(run, None))
    checks: list[Check] = []
    for check in checking(run):
        if check is not None:
            checks.append(check)
            continue
        signals.listen()
        if signals.got:
            raise stopped_by(signals.got[0])
    run.drive(record_done(run, result, tuple(checks)))
