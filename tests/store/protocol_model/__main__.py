"""An executable specification of outlast on many hosts: one run, two hosts, an engine, PostgreSQL with a standby, faults.

    python -m tests.store.protocol_model --rules fixed --seed 7 --steps 1         one schedule, with its trace (-v)
    python -m tests.store.protocol_model --rules fixed --seed 0 --steps 2000      seeds 0..1999; prints violations by invariant
    python -m tests.store.protocol_model --rules written --seed 0 --steps 500     the first text of the protocol
    python -m tests.store.protocol_model --mutant no_for_share --steps 500        one rule broken; must be found (`--mutants`: all)
    python -m tests.store.protocol_model --races                                  exhaustive: claim x renewal x append in PostgreSQL
    python -m tests.store.protocol_model --numbers                                exhaustive/random: subscription numbers

A schedule is a seed: a list of faults and the delays of each message. `--shrink` drops faults while the violation stays.
Time is continuous; each host has a clock of its own (rate 1 +- DRIFT; a paused VM's clock stands, a sleeping laptop's goes
on). Processes are generators; the server executes statements with row locks, snapshots, a WAL and a standby.

Invariants: I0 a taker by silence and the holder never both hold | I1 no effect twice (policy probe) | I2 no act of an old epoch begins after a taker settles what is in doubt |
I3 acknowledged is there, or nobody acts | I4 what an event names is there | I5 a writer knows its own journal |
I6 a healthy holder keeps its lease through an outage <= OUTAGE | I7 some host goes on | I8 the local fast path takes only
from the dead. `frozen` after a name: somebody slept, see `Freeze`; `window`: an act
whose intent was acknowledged by an asynchronous primary less than `act_within` before it died: nobody can know.
"""

import argparse
import sys

from tests.store.protocol_model.campaign import campaign, freezes
from tests.store.protocol_model.faults import faults_of
from tests.store.protocol_model.rules import MUTANTS, WRITTEN, Rules
from tests.store.protocol_model.simulation import play


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--steps", type=int, default=300, help="how many schedules")
    words.add_argument("--rules", choices=["fixed", "written"], default="fixed")
    words.add_argument("--mutant", choices=sorted(MUTANTS))
    words.add_argument("--only", help="of `written`: a comma-separated list of the rules that are as written")
    words.add_argument("--mutants", action="store_true")
    words.add_argument("--faults", default="net,kill,pg,engine,short")
    words.add_argument("--mode", default="sync,async")
    words.add_argument("--show", type=int, default=0, help="of each kind, how many are shrunk and shown")
    words.add_argument("--freeze", action="store_true", help="measure which stops break I1 and I2")
    words.add_argument("--races", action="store_true")
    words.add_argument("--numbers", action="store_true")
    words.add_argument("-v", action="store_true")
    args = words.parse_args()
    kinds, modes = args.faults.split(","), args.mode.split(",")
    if args.races or args.numbers:
        from tests.store.protocol_model import races

        return races.races() if args.races else races.numbers()
    if args.mutants:
        missed = 0
        for name, change in MUTANTS.items():
            struck = ["lid"] if name == "monotonic" else kinds
            found = campaign(
                Rules(**change), range(args.seed, args.seed + args.steps), struck, modes, 0, stop_at=3
            )
            broken = {
                k: v
                for k, v in found.items()
                if k not in ("schedules", "finished")
                and "window" not in k
                and (name == "monotonic" or "frozen" not in k)
            }
            missed += not broken
            print(
                f"{name:20} {'found' if broken else 'NOT FOUND':9} {broken} in {found['schedules']} schedules",
                flush=True,
            )
        return 1 if missed else 0
    given = MUTANTS[args.mutant] if args.mutant else WRITTEN if args.rules == "written" else {}
    if args.only:
        given = {name: WRITTEN[name] for name in args.only.split(",")}
    rules = Rules(**given)
    if args.freeze:
        freezes(rules, range(args.seed, args.seed + args.steps))
        return 0
    if args.v:
        play(args.seed, rules, modes[args.seed % len(modes)], faults_of(args.seed, kinds), verbose=True)
        return 0
    found = campaign(rules, range(args.seed, args.seed + args.steps), kinds, modes, args.show)
    print(dict(found))
    return (
        1
        if any(k not in ("schedules", "finished") and "frozen" not in k and "window" not in k for k in found)
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
