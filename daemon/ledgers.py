"""Which ledger the settings want: a file of this host, or a table that all hosts share; opened, with what lies beside.

Shell. Nothing else asks which of the two it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon import dynamodb_table, host
from daemon.clock import Clock, SystemClock
from daemon.config import Settings
from daemon.dynamodb_calls import Calls
from daemon.errors import ResourceError
from daemon.ledger import Ledger
from daemon.ledger_dynamodb import DynamoDbLedger
from daemon.ledger_rows import APPLICATION_ID, MIGRATIONS, USABLE_FROM
from daemon.ledger_sqlite import SqliteLedger
from daemon.lock import instance_lock
from daemon.lock_dynamodb import run_lock
from daemon.outbox import Outbox
from daemon.outbox_dynamodb import DynamoDbOutbox
from daemon.outbox_sqlite import SqliteOutbox
from daemon.recovery import Recovery
from daemon.recovery_dynamodb import DynamoDbRecovery
from daemon.recovery_sqlite import SqliteRecovery
from daemon.sqlite_file import SqliteFile

_DAY_S = 86_400.0


def place(settings: Settings) -> str:
    """Where the ledger is, for a message."""
    return f"table {settings.ledger.table}" if settings.ledger.table else str(ledger_file(settings))


def ledger_file(settings: Settings) -> Path:
    """Where this host's own ledger lies."""
    return settings.state_dir / "ledger.db"


def open_ledger(settings: Settings, *, clock: Clock | None = None, boot_id: str | None = None) -> Ledger:
    """To be written; `clock` and `boot_id` are this host's unless others are given.

    A file is made when it is missing, a table is not. Raises `OperatorError`, and `WorldError`.
    """
    if settings.ledger.table:
        return _open_table(settings, clock=clock, boot_id=boot_id)
    notices = bool(settings.notices.destination)
    return SqliteLedger.open(ledger_file(settings), notices=notices, clock=clock, boot_id=boot_id)


def open_known(settings: Settings) -> Ledger:
    """To be written, and never made. Raises like `open_ledger`."""
    path = ledger_file(settings)
    if not settings.ledger.table and not path.exists():
        message = f"cannot read {path}: there is no such file. Is state_dir right, and has the daemon run here?"
        raise ResourceError(message)
    return open_ledger(settings)


def open_to_look(settings: Settings) -> tuple[Ledger, int]:
    """To see that it could be written, beside a daemon of another version: ask only `counts`.

    Also how many migrations a file lacks; none is applied (below 0: a newer version's). Raises like `open_ledger`.
    """
    if settings.ledger.table:
        return _open_table(settings), 0
    path, known = ledger_file(settings), len(MIGRATIONS)
    applied = MIGRATIONS[: SqliteFile.version_of(path, application_id=APPLICATION_ID, known=known) or known]
    usable_from = USABLE_FROM if len(applied) == known else None
    file = SqliteFile.open(path, application_id=APPLICATION_ID, migrations=applied, usable_from=usable_from)
    return SqliteLedger(file), known - file.version


def open_to_read(settings: Settings) -> Ledger:
    """To be asked only. Raises like `open_ledger`."""
    return _open_table(settings) if settings.ledger.table else SqliteLedger.open_read_only(ledger_file(settings))


def recovery_of(ledger: Ledger) -> Recovery:
    """What the same ledger keeps of failures."""
    if isinstance(ledger, DynamoDbLedger):
        return DynamoDbRecovery(ledger)
    assert isinstance(ledger, SqliteLedger), "there are two ledgers"
    return SqliteRecovery(ledger)


@contextmanager
def sweep_lock(settings: Settings, ledger: Ledger) -> Iterator[None]:
    """Held by one sweep of all that share the ledger. Raises `AlreadyRunningError`."""
    advice = "Let it end; the next sweep finds what is left."
    if isinstance(ledger, DynamoDbLedger):
        with run_lock(ledger.documents.calls, "sweep", advice=advice):
            yield
    else:
        with instance_lock(settings.state_dir / "sweep.lock", advice=advice):
            yield


def outbox_of(ledger: Ledger) -> Outbox:
    """What the same ledger keeps of notices."""
    if isinstance(ledger, DynamoDbLedger):
        return DynamoDbOutbox(ledger.documents.calls)
    assert isinstance(ledger, SqliteLedger), "there are two ledgers"
    return SqliteOutbox(ledger.file)


@contextmanager
def notices_lock(settings: Settings, ledger: Ledger) -> Iterator[None]:
    """Held while notices are sent, by one process of all that share the ledger. Raises `AlreadyRunningError`.

    Of two that send at once, the slower one could tell an old state last.
    """
    advice = "It sends all that waits."
    if isinstance(ledger, DynamoDbLedger):
        with run_lock(ledger.documents.calls, "notices", advice=advice):
            yield
    else:
        with instance_lock(settings.state_dir / "notices.lock", advice=advice):
            yield


def create_table(settings: Settings) -> bool:
    """Make the table; False when it was there and is as it must be. Raises `OperatorError` when it cannot be used."""
    settings.require("ledger.table", command="bulkhead ledger create")
    calls = Calls(settings.ledger)
    try:
        return dynamodb_table.create(calls)
    finally:
        calls.close()


def _open_table(settings: Settings, *, clock: Clock | None = None, boot_id: str | None = None) -> DynamoDbLedger:
    calls = Calls(settings.ledger)
    try:
        dynamodb_table.check(calls)
    except BaseException:  # whatever it was: connections are given back, and it goes on
        calls.close()
        raise
    return DynamoDbLedger(
        calls,
        clock=clock or SystemClock(),
        boot_id=boot_id or host.holder().boot_id,
        keep_s=settings.ledger.keep_days * _DAY_S,
        notices=bool(settings.notices.destination),
    )
