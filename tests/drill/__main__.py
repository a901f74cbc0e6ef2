"""The drill: everything is broken once while buyers buy; the table says what they got, and which alarm fired when.

    scripts/drill            all steps, twelve minutes
    scripts/drill --short    the steps that the CI takes, three minutes

Exit codes: 0 everything was as expected; 1 something was not, and the last lines say what.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace

from tests.drill.buyers import PRICE, Crowd, Purchase, Seen
from tests.drill.faults import nothing
from tests.drill.shop import Shop, shop
from tests.drill.steps import STEPS, Step
from tests.drill.watch import Watch

BEFORE, AFTER = 3.0, 4.0
"""Seconds of buying before and after a fault."""
ALARM_SECONDS = 60.0
"""Seconds after which an alarm that has not fired is not waited for any more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one step."""

    step: Step
    seconds: float
    seen: Seen
    fired: dict[str, float]
    received: dict[str, int]
    booked: dict[str, int]
    refuted: str = ""
    """What the step itself found."""

    @property
    def faults(self) -> list[str]:
        """What was not as expected, each as a sentence."""
        step, fired = self.step, self.fired.keys()
        found = [f"the alarm {name} did not fire" for name in sorted(step.must - fired)]
        found += [f"the alarm {name} fired" for name in sorted(fired - step.must - step.may)]
        found += [self.refuted] if self.refuted else []
        found += [f"{each.protocol} {each.key} ended with: {each.ended}" for each in self.unsold]
        for protocol, base_units in self.received.items():
            sold = PRICE * sum(each.ended == "200" for each in self.seen.purchases if each.protocol == protocol)
            if not base_units == self.booked[protocol] == sold:
                found.append(
                    f"over {protocol} callers bought for {sold}, the chain moved {base_units}, "
                    f"and the books say {self.booked[protocol]}"
                )
        transactions = [each.transaction for each in self.seen.purchases if each.ended == "200"]
        if len(set(transactions)) < len(transactions):
            found.append("one transaction is in two receipts")
        if not transactions:
            found.append("nothing was sold")
        if step.is_clean:
            found += [f"a caller got {answer}" for answer in sorted(self.seen.answers) if answer[:3] not in _CLEAN]
        return found

    @property
    def unsold(self) -> list[Purchase]:
        """The purchases that did not end with the answer."""
        return [each for each in self.seen.purchases if each.ended != "200"]

    @property
    def row(self) -> str:
        """The line of the table."""
        answers = ", ".join(f"{number} x {answer}" for answer, number in sorted(self.seen.answers.items()))
        alarms = ", ".join(f"{name} {at:.0f} s" for name, at in sorted(self.fired.items(), key=lambda each: each[1]))
        bought = len(self.seen.purchases)
        once = sum(self.received.values()) == PRICE * (bought - len(self.unsold)) == sum(self.booked.values())
        ended = f"{bought - len(self.unsold)} of {bought}, {'each paid once' if once else 'MONEY DIFFERS'}"
        verdict = "as expected" if not self.faults else "NOT AS EXPECTED"
        cells = (self.step.name, f"{self.seconds:.0f} s", answers, alarms or "none", ended, verdict)
        return f"| {' | '.join(cells)} |"


def take(step: Step, number: int, running: Shop, crowd: Crowd) -> Outcome:
    """Take one step, with buyers before, during and after it, and return what came of it."""
    metrics = [replica.metrics_port for replica in running.replicas]
    received, booked = running.received(), running.booked()
    began = time.monotonic()
    with Watch(running.processes, f"prometheus-{number}", metrics, running.probe, shortened=step.is_shortened) as watch:
        seen = crowd.begin()
        time.sleep(BEFORE)
        watch.mark()
        refuted = last(step, running, seen, watch)
        time.sleep(AFTER)
        crowd.end()
    return Outcome(
        step,
        time.monotonic() - began,
        seen,
        watch.fired,
        {name: amount - received[name] for name, amount in running.received().items()},
        {name: amount - booked[name] for name, amount in running.booked().items()},
        refuted,
    )


def last(step: Step, running: Shop, seen: Seen, watch: Watch) -> str:
    """Have the fault, for as long as the step says and until its alarms have fired; return what it found wrong."""
    until = time.monotonic() + step.seconds
    try:
        with step.fault(running, seen):
            watch.wait_for(step.must, ALARM_SECONDS)
            time.sleep(max(0.0, until - time.monotonic()))
    except AssertionError as error:
        return f"the step broke off: {error!r}"
    return ""


def main() -> int:
    """Take the steps, print a row for each as it ends, and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/drill", description=__doc__)
    parser.add_argument("--short", action="store_true", help="only the steps that the CI takes")
    parser.add_argument(
        "--only", metavar="TEXT", nargs="+", default=[""], help="only steps whose name has one of these"
    )
    parser.add_argument("--quiet-minutes", type=float, default=2, help="how long nothing happens in the first step")
    given = parser.parse_args()
    steps = [
        step for step in STEPS if (step.is_short or not given.short) and any(text in step.name for text in given.only)
    ]
    steps = [replace(step, seconds=60 * given.quiet_minutes) if step.fault is nothing else step for step in steps]
    faults: list[str] = []
    began = time.monotonic()
    with shop() as running, Crowd(running.protocols, running.origin) as crowd:
        print("| what happens | takes | what callers got | alarms, and after how long | ended 200 | |")
        print("|---|---|---|---|---|---|", flush=True)
        for number, step in enumerate(steps):
            outcome = take(step, number, running, crowd)
            print(outcome.row, flush=True)
            faults += [f"{step.name}: {fault}" for fault in outcome.faults]
    print(f"\n{len(steps)} {'step' if len(steps) == 1 else 'steps'} in {time.monotonic() - began:.0f} s.")
    for fault in faults:
        print(f"NOT AS EXPECTED: {fault}")
    return 1 if faults else 0


_CLEAN = ("200", "402")

if __name__ == "__main__":
    sys.exit(main())
