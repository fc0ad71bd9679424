"""One SQLite database file: opened for good or only to read, migrated, written durably, its errors named.

Edge; knows nothing of what the tables mean. Rules: a write is one `BEGIN IMMEDIATE` transaction and is on the
medium when `write` returns (WAL, `synchronous=FULL`); one connection, guarded by one lock, serves all threads of
the process; other processes read while we write. Migrations are numbered from 1, the number is `user_version`,
and one that has been released is never edited. The file itself says (`schema.usable_from`) how old a program may be
that still uses it: that is how one can go back by a version. No `sqlite3.Error` leaves this file, but for our own bugs.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from daemon.errors import BulkheadError, ConfigurationError, ResourceError, WorldError
from daemon.model import Cause

#: How long one statement waits for another process's write; ours take one fsync each, so this is patience enough.
BUSY_TIMEOUT_S = 10.0
#: Switching to WAL is not covered by the busy timeout, so it is tried that often, `WAL_PAUSE_S` apart.
WAL_TRIES = 100
WAL_PAUSE_S = 0.05

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)


class SqliteFile:
    """An open database file; safe to use from several threads, not across a fork."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls, path: Path, *, application_id: int, migrations: Sequence[Sequence[str]], usable_from: int | None = None
    ) -> Self:
        """Open for reading and writing; create the file when it is missing, and migrate it.

        `application_id` is written into the file's header and tells it from other databases. `usable_from` is the
        smallest number of migrations with which a program may use the file as it is after the last one; None: only
        with all of them. Raises `ResourceError` when the file cannot be created or written, `ConfigurationError` when
        it is damaged, no database, another application's, or written by a newer version that leaves this one no way
        to use it, and `WorldError` when the disk is full.
        """
        with _at_open(path), contextlib.ExitStack() as undo:
            connection = undo.enter_context(contextlib.closing(_connect(path, mode="rwc")))
            file = cls(path, connection)
            file._check_identity(application_id, known=len(migrations))
            _use_wal(connection, path)
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
            file._migrate(application_id, migrations, len(migrations) if usable_from is None else usable_from)
            _sync_folder(path.parent)
            undo.pop_all()
            return file

    @classmethod
    def open_read_only(cls, path: Path, *, application_id: int, known: int) -> Self:
        """Open what another process may be writing; creates no database and changes nothing in it.

        `known` is the newest migration's number. Raises like `open`, and `ResourceError` when there is no file.
        """
        with _at_open(path), contextlib.ExitStack() as undo:
            if not path.exists():
                raise ResourceError(
                    f"cannot read {path}: there is no such file. Is the path right, and has the daemon run here?"
                )
            connection = undo.enter_context(contextlib.closing(_connect_to_read(path)))
            file = cls(path, connection)
            file._check_identity(application_id, known=known)
            version = file._number("user_version")
            if version < known:
                raise ConfigurationError(
                    f"cannot read {path}: its schema is {version} and this version reads {known}. "
                    "Start the daemon of this version once; it migrates the file."
                )
            undo.pop_all()
            return file

    @classmethod
    def version_of(cls, path: Path, *, application_id: int, known: int) -> int:
        """How many migrations a file has seen, without applying one; 0 when there is none yet. Raises like `open`."""
        if not path.exists():
            return 0
        with _at_open(path), contextlib.closing(_connect_to_read(path)) as connection:
            file = cls(path, connection)
            file._check_identity(application_id, known=known)
            return file.version

    @property
    def version(self) -> int:
        """How many migrations the file has seen; more than this program knows when a newer one left it usable."""
        with self._lock, _translated(self.path):
            return self._number("user_version")

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its first statement; on the medium when the block ends.

        An exception in the block, or a failed commit, leaves nothing written. Raises
        `WorldError(DISK_FULL | STORE_UNAVAILABLE)`, and `ConfigurationError` when the file is damaged.
        """
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Several statements over one state of the file. Raises like `write`."""
        with self._transaction("BEGIN") as connection:
            yield connection

    def close(self) -> None:
        """Close the connection; the same again is harmless."""
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock, _translated(self.path):
            self._connection.execute(begin)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):  # what made us roll back is the error to show
                        self._connection.execute("ROLLBACK")

    def _number(self, pragma: str) -> int:
        return int(self._connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _check_identity(self, application_id: int, *, known: int) -> None:
        """Raise `ConfigurationError` unless the file is empty or ours, and of a version that we know."""
        with self.read() as connection:  # one state: another process may be migrating it just now
            found = self._number("application_id")
            version = self._number("user_version")
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            usable_from = self._usable_from(connection) if version > known else 0
        if found != application_id and (found or tables):
            raise ConfigurationError(
                f"cannot use {self.path}: it is the database of another program. Name another path."
            )
        if version > known and not 0 < usable_from <= known:
            raise ConfigurationError(
                f"cannot use {self.path}: it was written by a newer version (schema {version}; this one knows {known})."
                " Install that version or a later one; do not go back with this file."
            )

    @staticmethod
    def _usable_from(connection: sqlite3.Connection) -> int:
        """What the newer version that wrote the file says; 0 when it says nothing."""
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema'").fetchone():
            return 0
        row = connection.execute("SELECT usable_from FROM schema").fetchone()
        return int(row[0]) if row else 0

    def _migrate(self, application_id: int, migrations: Sequence[Sequence[str]], usable_from: int) -> None:
        """Apply what is missing, each migration in a transaction of its own; two processes may try at once."""
        for number, statements in enumerate(migrations, start=1):
            with self.write() as connection:
                if self._number("user_version") >= number:
                    continue
                for statement in statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id={application_id:d}")
                connection.execute(f"PRAGMA user_version={number:d}")
        with self.read() as connection:
            if self._number("user_version") != len(migrations) or self._usable_from(connection) == usable_from:
                return
        with self.write() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS schema (usable_from INTEGER NOT NULL) STRICT")
            connection.execute("DELETE FROM schema")
            connection.execute("INSERT INTO schema VALUES (?)", (usable_from,))


def _connect(path: Path, *, mode: str, immutable: bool = False) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write.

    A reader of a WAL file needs its `-shm`; one who may not create it can still read a file that nobody has open.
    """
    connection = _connect(path, mode="ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if _primary(error) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY} or Path(f"{path}-wal").exists():
            raise
        return _connect(path, mode="ro", immutable=True)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Switch to WAL; raises `ResourceError` where the file system cannot do it."""
    for _ in range(WAL_TRIES):
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if _primary(error) != sqlite3.SQLITE_BUSY:
                raise
            threading.Event().wait(WAL_PAUSE_S)
            continue
        if mode != "wal":
            raise ResourceError(
                f"cannot use {path}: its file system has no shared memory for WAL. Put it on a local disk."
            )
        return
    raise WorldError(Cause.STORE_UNAVAILABLE, f"cannot open {path}: another process has kept it locked")


def _sync_folder(folder: Path) -> None:
    """Make a new file's name as durable as its content."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _primary(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for errors of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Name SQLite's errors for whose problem they are; a constraint or a wrong statement is our bug and passes."""
    try:
        yield
    except sqlite3.Error as error:
        named = _named(error, path)
        if named is None:
            raise
        raise named from error


def _named(error: sqlite3.Error, path: Path) -> BulkheadError | None:
    code = _primary(error)
    if code == sqlite3.SQLITE_FULL:
        return WorldError(
            Cause.DISK_FULL, f"cannot write {path}: the disk is full. Free some space; work goes on by itself."
        )
    if code in _DAMAGED:
        return ConfigurationError(
            f"cannot use {path}: it is damaged, or no database ({error}). Stop the daemon, keep a copy of the file "
            "with its -wal and -shm, and put back a backup, or move the file away to begin a new one."
        )
    if code in _UNAVAILABLE:
        return WorldError(
            Cause.STORE_UNAVAILABLE, f"cannot use {path}: {error} ({getattr(error, 'sqlite_errorname', '?')})"
        )
    return None


@contextlib.contextmanager
def _at_open(path: Path) -> Iterator[None]:
    """At start, a file that cannot be opened or written is the operator's problem and not the world's."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"cannot open {path}: {error}. Check its folder and what this user may do there."
        ) from error
    except sqlite3.Error as error:
        if _primary(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
            raise ResourceError(
                f"cannot open {path}: {error}. Check that its folder exists and that this user may write in it."
            ) from error
        named = _named(error, path)
        if named is None:
            raise
        raise named from error
