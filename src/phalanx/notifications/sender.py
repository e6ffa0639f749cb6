"""The process that sends notifications: one per home at a time, out of the passes of the scheduler.

Each message is recorded before it is sent, so it is sent at most once, even if this process is killed. A try that
certainly failed is repeated a few times; everything else is not. Failures never touch a run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from phalanx.atomic_files import read_json, write_atomic
from phalanx.errors import CallError, SpecErrors, StoreError, SystemFault
from phalanx.home.home import Home
from phalanx.home.run_tokens import server_url
from phalanx.locks import locked
from phalanx.notifications.channels import send, shown_target
from phalanx.notifications.delivery_log import Delivery, DeliveryLog, DeliveryState
from phalanx.notifications.dispatch import Dispatch, NotSent
from phalanx.notifications.message import Happening, Message, message
from phalanx.notifications.notices import EVENT_OF, Notice, alone, read_notices
from phalanx.notifications.permission import refusal
from phalanx.notifications.run_rules import AppliedRule, read_rules, rules_of
from phalanx.settings.home_settings import HomeSettings, read_home_settings
from phalanx.spec.model import NotifyEvent
from phalanx.store import Run, Store

BACK_OFF_S = (5.0, 30.0, 120.0, 600.0)  # before the second, third, … try
PATIENCE_S = 60.0  # for a status that is announced and not written
MOST_SLEEP_S = 5.0
LARGEST_LOG = 1 << 20
TROUBLE = "notifier.json"  # the last failure, for `phalanx doctor`
FACT = "notifications"


class Sender:
    def __init__(self, home: Home, store: Store, back_off_s: tuple[float, ...] = BACK_OFF_S) -> None:
        self.home = home
        self.store = store
        self.back_off_s = back_off_s
        self.seen: set[str] = set()  # the notices at the last look

    def send_all(self) -> float | None:
        """Send what is due. Returns when the next try is due; None if nothing is left. Raises SpecErrors, CallError if
        the settings of the home are invalid."""
        settings, notices = read_home_settings(self.home.path), list(read_notices(self.home.path))
        self.seen = {notice.path.name for notice in notices}
        times = [self.handle(notice, settings) for notice in notices]
        return min((at for at in times if at is not None), default=None)

    def handle(self, notice: Notice, settings: HomeSettings) -> float | None:
        """Send one notice to all its targets. The notice goes when nothing is left to try."""
        folder = self.home.run(notice.run_id)
        run = folder.read()
        if run is None:
            notice.path.unlink(missing_ok=True)
            return None
        if notice.event in EVENT_OF.values() and not self._has_happened(notice):
            return self._not_yet(notice)
        log = DeliveryLog(folder.path)
        rules = rules_of(run, read_rules(folder.path), settings)
        wanted = [one for one in rules if _is_told(one, notice.event) and not self._is_told_as_failed(one, notice)]
        times = [self._deliver(one, notice, run, log, settings) for one in wanted]
        self._show(run.id, log)
        left = [at for at in times if at is not None]
        if not left:
            notice.path.unlink(missing_ok=True)
        return min(left, default=None)

    def _has_happened(self, notice: Notice) -> bool:
        history = self.home.run(notice.run_id).history()
        return len(history) >= notice.number and EVENT_OF.get(history[notice.number - 1].status) == notice.event

    def _is_told_as_failed(self, one: AppliedRule, notice: Notice) -> bool:
        """A run that stalled and then failed is one message to those who hear of failures."""
        if notice.event is not NotifyEvent.STALLED or NotifyEvent.FAILED not in one.rule.on:
            return False
        history = self.home.run(notice.run_id).history()
        return any(change.attempt == notice.number and change.status == "failed" for change in history)

    def _not_yet(self, notice: Notice) -> float | None:
        """The scheduler is about to write the status, or was killed before. The next one may decide otherwise."""
        history = self.home.run(notice.run_id).history()
        if len(history) >= notice.number:
            notice.path.unlink(missing_ok=True)
            return None
        with suppress(FileNotFoundError):
            if time.time() - notice.path.stat().st_mtime < PATIENCE_S:
                return time.time() + 0.5
        return None  # stays: the next scheduler ends the run, and starts the sender again

    def _deliver(
        self, one: AppliedRule, notice: Notice, run: Run, log: DeliveryLog, settings: HomeSettings
    ) -> float | None:
        """One message to one target. Returns the time of the next try, if there is to be one."""
        rule, key = one.rule, f"{run.id}.{notice.number}.{notice.event}.{one.key}"
        delivery_id = hashlib.sha256(key.encode()).hexdigest()[:24]
        last = log.read().get(delivery_id)
        if last is not None and last.is_over:
            return None
        if last is not None and last.state is DeliveryState.SENDING:
            why = "the sender was killed meanwhile: it may have been sent, and is not sent again"
            self._failed(log.append(last._replace(state=DeliveryState.UNKNOWN, why=why)), run)
            return None
        if last is not None and last.next_at is not None and time.time() < last.next_at:
            return last.next_at
        tries = 1 if last is None else last.tries + 1
        about = (delivery_id, str(notice.event), notice.number, rule.channel, shown_target(rule))
        now = Delivery(*about, DeliveryState.SENDING, time.time(), tries)
        refused = refusal(rule, settings) if one.is_remote else None
        if rule.by == "slurm" and run.backend == "slurm":
            return None  # Slurm sends it
        if refused is not None:
            self._failed(log.append(now._replace(state=DeliveryState.FAILED, why=refused)), run)
            return None
        now = log.append(now)
        try:
            working = self.home.run(run.id).working()
            send(self.home.path, settings, rule, Dispatch(delivery_id, self._message(run, notice), working))
        except NotSent as fault:
            return self._try_again(log, now, run, fault)
        log.append(now._replace(state=DeliveryState.SENT))
        return None

    def _try_again(self, log: DeliveryLog, now: Delivery, run: Run, fault: NotSent) -> float | None:
        if fault.may_retry and now.tries <= len(self.back_off_s):
            next_at = time.time() + self.back_off_s[now.tries - 1]
            log.append(now._replace(state=DeliveryState.RETRY, why=str(fault), next_at=next_at))
            return next_at
        self._failed(log.append(now._replace(state=DeliveryState.FAILED, why=str(fault))), run)
        return None

    def _message(self, run: Run, notice: Notice) -> Message:
        folder, failure = self.home.run(run.id), None
        history = folder.history()
        is_end = notice.event in EVENT_OF.values()
        at = history[notice.number - 1] if is_end else history[-1]
        with suppress(CallError, StoreError):
            known = self.store.find(run.id)
            run = known._replace(status=run.status)
            failure = self.store.facts(run.id).get("failure")
        server = server_url(self.home.path)
        url = f"{server}/runs/{run.id}" if server else None
        reason = at.reason if is_end else notice.reason
        first = failure if isinstance(failure, dict) else None
        return message(run, Happening(notice.event, at.attempt, reason, first), url)

    def _failed(self, delivery: Delivery, run: Run) -> None:
        about = {"run": run.id, **delivery._asdict(), "state": str(delivery.state)}
        print(f"run {run.id}: {delivery.channel} to {delivery.to}: {delivery.why}", file=sys.stderr, flush=True)
        with suppress(OSError):
            write_atomic(self.home.path / TROUBLE, json.dumps(about).encode(), sync=False)

    def _show(self, run_id: str, log: DeliveryLog) -> None:
        """Store the deliveries, for lists and pages: the run's folder has them all."""
        rows = [{**one._asdict(), "state": str(one.state)} for one in log.read().values()]
        with suppress(StoreError, CallError):
            self.store.put_fact(run_id, FACT, rows[-20:])


def _is_told(one: AppliedRule, event: NotifyEvent) -> bool:
    return event in one.rule.on or (event is NotifyEvent.WAITING and one.rule.waiting_s is not None)


def last_trouble(home: Path) -> dict[str, object] | None:
    """The last notification that was not sent."""
    found = read_json(home / TROUBLE)
    return found if isinstance(found, dict) else None


def work(home: Home, store: Store, sleep: Callable[[float], None] = time.sleep) -> None:
    """Send all notices, with all tries, unless another process does."""
    sender = Sender(home, store)
    is_done = False
    while not is_done:
        with locked(alone(home.path), wait=False) as is_alone:
            while is_alone and (at := sender.send_all()) is not None:
                sleep(max(0.1, min(MOST_SLEEP_S, at - time.time())))
        # A notice may have been left after the last look, while the lock kept another process from starting.
        is_done = not is_alone or sender.seen.issuperset(notice.path.name for notice in read_notices(home.path))


def main() -> None:
    path = Path(sys.argv[1])
    if not path.is_dir():
        return
    os.nice(10)
    log = path / "notices.log"
    with suppress(OSError):
        if log.stat().st_size > LARGEST_LOG:
            os.truncate(log, 0)
    home = Home(path)
    try:
        with Store.open(home.path, os.environ.get("PHALANX_DATABASE")) as store:
            work(home, store)
    except (SpecErrors, CallError, SystemFault, OSError) as fault:
        print(f"notifications are not sent: {fault}", file=sys.stderr, flush=True)
        with suppress(OSError):
            about = {"why": f"notifications are not sent: {fault}"[:1000], "at": time.time(), "run": None}
            write_atomic(path / TROUBLE, json.dumps(about).encode(), sync=False)


if __name__ == "__main__":
    main()
