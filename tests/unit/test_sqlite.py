"""One SQLite file: opening, migrating, and what its failures are called."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.errors import BulkheadError, ConfigurationError, ResourceError, WorldError
from daemon.model import Cause
from daemon.sqlite_file import SqliteFile

APPLICATION = 77
FIRST = ("CREATE TABLE notes (text TEXT NOT NULL) STRICT",)
SECOND = ("ALTER TABLE notes ADD COLUMN author TEXT", "CREATE INDEX by_author ON notes (author)")

#: Fills a database on a "disk" that has room for 1 MB, and says how it ended.
FILLER = """
import resource, signal, sys
from pathlib import Path
from daemon.errors import WorldError
from daemon.sqlite_file import SqliteFile
migrations = [["CREATE TABLE notes (text TEXT NOT NULL) STRICT"]]
file = SqliteFile.open(Path(sys.argv[1]), application_id=77, migrations=migrations)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
written = 0
try:
    while True:
        with file.write() as db:
            db.execute("INSERT INTO notes VALUES (?)", ("x" * 10_000,))
        written += 1
except WorldError as error:
    print(written, error.cause)
"""


def open_file(path: Path, *migrations: tuple[str, ...]) -> SqliteFile:
    """Open with the tests' own identity."""
    return SqliteFile.open(path, application_id=APPLICATION, migrations=migrations or (FIRST,))


def query(file: SqliteFile, statement: str) -> list[tuple[object, ...]]:
    """All rows of one statement."""
    with file.read() as db:
        return db.execute(statement).fetchall()


def test_durability_settings(tmp_path: Path) -> None:
    """Every commit is on the medium, readers are not blocked, references are checked."""
    file = open_file(tmp_path / "file.db")
    assert query(file, "PRAGMA journal_mode") == [("wal",)]
    assert query(file, "PRAGMA synchronous") == [(2,)]
    assert query(file, "PRAGMA foreign_keys") == [(1,)]
    file.close()


def test_migration_of_an_older_file(tmp_path: Path) -> None:
    """An upgrade keeps what is there and applies only what is missing, once."""
    path = tmp_path / "file.db"
    file = open_file(path)
    with file.write() as db:
        db.execute("INSERT INTO notes VALUES ('kept')")
    file.close()
    for _ in range(2):
        file = open_file(path, FIRST, SECOND)
        assert query(file, "SELECT text, author FROM notes") == [("kept", None)]
        assert query(file, "PRAGMA user_version") == [(2,)]
        file.close()


def test_migration_that_fails(tmp_path: Path) -> None:
    """A migration is applied whole or not at all."""
    path = tmp_path / "file.db"
    open_file(path).close()
    with pytest.raises(sqlite3.OperationalError):
        open_file(path, FIRST, (SECOND[0], "CREATE NONSENSE"))
    file = open_file(path)
    assert query(file, "PRAGMA user_version") == [(1,)]
    assert [row[1] for row in query(file, "PRAGMA table_info(notes)")] == ["text"]
    file.close()


def test_first_opening_by_many_at_once(tmp_path: Path) -> None:
    """The daemon and a command that start on a fresh host together both get a whole file."""
    path, start = tmp_path / "file.db", threading.Barrier(4)

    def first(_: int) -> list[tuple[object, ...]]:
        start.wait(timeout=30)
        file = open_file(path, FIRST, SECOND)
        try:
            return query(file, "PRAGMA user_version")
        finally:
            file.close()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(first, range(4))) == [[(2,)]] * 4


def test_file_of_a_newer_version(tmp_path: Path) -> None:
    """A downgraded daemon must not write into tables that it does not know."""
    path = tmp_path / "file.db"
    open_file(path, FIRST, SECOND).close()
    with pytest.raises(ConfigurationError, match=r"written by a newer version \(schema 2; this one knows 1\)"):
        open_file(path)
    with pytest.raises(ConfigurationError, match="newer version"):
        SqliteFile.open_read_only(path, application_id=APPLICATION, known=1)


def test_going_back_by_a_version(tmp_path: Path) -> None:
    """After an upgrade that only added, the version before works on the file, and leaves what it does not know."""
    path = tmp_path / "file.db"
    open_file(path).close()
    newer = SqliteFile.open(path, application_id=APPLICATION, migrations=(FIRST, SECOND), usable_from=1)
    with newer.write() as db:
        db.execute("INSERT INTO notes VALUES ('by the newer', 'somebody')")
    older = open_file(path)  # beside it, as it is while hosts or commands of both versions run
    assert older.version == 2
    with older.write() as db:
        db.execute("INSERT INTO notes (text) VALUES ('by the older')")
    older.close()
    newer.close()
    SqliteFile.open_read_only(path, application_id=APPLICATION, known=1).close()
    again = SqliteFile.open(path, application_id=APPLICATION, migrations=(FIRST, SECOND), usable_from=1)
    assert query(again, "SELECT text, author FROM notes") == [("by the newer", "somebody"), ("by the older", None)]
    again.close()


def test_going_back_by_more_than_the_file_allows(tmp_path: Path) -> None:
    """The file says how old a program may be; an older one is refused and has changed nothing."""
    path = tmp_path / "file.db"
    third = ("CREATE TABLE more (x TEXT) STRICT",)
    SqliteFile.open(path, application_id=APPLICATION, migrations=(FIRST, SECOND, third), usable_from=2).close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=r"schema 3; this one knows 1\).*do not go back"):
        open_file(path)
    assert path.read_bytes() == before
    open_file(path, FIRST, SECOND).close()


def test_a_file_that_was_migrated_before_files_said_so(tmp_path: Path) -> None:
    """A file of the newest schema learns how far back one may go when it is opened next."""
    path = tmp_path / "file.db"
    open_file(path, FIRST, SECOND).close()
    with pytest.raises(ConfigurationError, match="newer version"):
        open_file(path)
    SqliteFile.open(path, application_id=APPLICATION, migrations=(FIRST, SECOND), usable_from=1).close()
    open_file(path).close()


def test_reader_of_an_older_file(tmp_path: Path) -> None:
    """A reader never migrates; it says who does."""
    path = tmp_path / "file.db"
    open_file(path).close()
    with pytest.raises(ConfigurationError, match="Start the daemon of this version once"):
        SqliteFile.open_read_only(path, application_id=APPLICATION, known=2)


def test_database_of_another_program(tmp_path: Path) -> None:
    """A path that names somebody else's database must not be taken over."""
    path = tmp_path / "file.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="database of another program"):
        open_file(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"no database at all, but long enough to be read as one" * 40, b"%PDF-1.7\n" * 300]
)
def test_no_database(tmp_path: Path, content: bytes) -> None:
    """What is no database is left alone, and the message says what to do."""
    path = tmp_path / "file.db"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"damaged, or no database.*keep a copy.*backup"):
        open_file(path)
    assert path.read_bytes() == content


def test_damaged_database(tmp_path: Path) -> None:
    """Damage that shows while the daemon runs is the operator's, and never looks like a busy disk."""
    path = tmp_path / "file.db"
    file = open_file(path)
    with file.write() as db:
        db.executemany("INSERT INTO notes VALUES (?)", [("x" * 500,)] * 500)
    file.close()
    with path.open("r+b") as raw:
        raw.seek(4096 * 4)  # past what opening reads
        raw.write(b"\xff" * 4096 * 20)
    file = open_file(path)
    with pytest.raises(ConfigurationError, match="damaged"):
        query(file, "SELECT count(text), max(length(text)) FROM notes")
    file.close()


def test_missing_folder(tmp_path: Path) -> None:
    """At start, a path that cannot be opened is the operator's to mend."""
    with pytest.raises(ResourceError, match=r"cannot open .*folder exists"):
        open_file(tmp_path / "absent" / "file.db")


def test_full_disk(tmp_path: Path) -> None:
    """A write for which there is no room is refused whole, as the world's problem; earlier ones stay."""
    path = tmp_path / "file.db"
    ended = subprocess.run(
        [sys.executable, "-c", FILLER, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    written, cause = ended.stdout.split()
    # A limit on a file's size is EFBIG to SQLite, an I/O error; a full file system is SQLITE_FULL (below).
    assert cause == Cause.STORE_UNAVAILABLE
    file = open_file(path)
    assert query(file, "SELECT count(*) FROM notes") == [(int(written),)]
    file.close()


def test_no_page_left(tmp_path: Path) -> None:
    """SQLite's own "database or disk is full" is a full disk, and the ledger can go on once there is room."""
    file = open_file(tmp_path / "file.db")
    file._connection.execute("PRAGMA max_page_count=4")
    with pytest.raises(WorldError) as caught, file.write() as db:
        db.executemany("INSERT INTO notes VALUES (?)", [("x" * 1_000,)] * 100)
    assert caught.value.cause is Cause.DISK_FULL
    assert query(file, "SELECT count(*) FROM notes") == [(0,)]
    file._connection.execute("PRAGMA max_page_count=1000")
    with file.write() as db:
        db.execute("INSERT INTO notes VALUES ('room')")
    assert query(file, "SELECT text FROM notes") == [("room",)]
    file.close()


def test_locked_by_another_process(tmp_path: Path) -> None:
    """A writer that stays away too long is the world's problem; nothing was written."""
    path = tmp_path / "file.db"
    file = open_file(path)
    file._connection.execute("PRAGMA busy_timeout=10")
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    with pytest.raises(WorldError, match="SQLITE_BUSY") as caught, file.write():
        pass
    assert caught.value.cause is Cause.STORE_UNAVAILABLE
    rival.execute("ROLLBACK")
    rival.close()
    with file.write() as db:
        db.execute("INSERT INTO notes VALUES ('later')")
    file.close()


def test_reader_cannot_write(tmp_path: Path) -> None:
    """A command that only looks can do no harm."""
    path = tmp_path / "file.db"
    open_file(path).close()
    reader = SqliteFile.open_read_only(path, application_id=APPLICATION, known=1)
    with pytest.raises(WorldError, match="READONLY"), reader.write() as db:
        db.execute("INSERT INTO notes VALUES ('no')")
    reader.close()


def test_exception_in_a_transaction(tmp_path: Path) -> None:
    """Whatever goes wrong inside, even an interrupt, leaves nothing half written and no lock."""
    file = open_file(tmp_path / "file.db")

    def interrupted() -> None:
        with file.write() as db:
            db.execute("INSERT INTO notes VALUES ('half')")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert query(file, "SELECT * FROM notes") == []
    file.close()


def test_our_own_mistake(tmp_path: Path) -> None:
    """A broken constraint is a bug and must not be retried as if the world were at fault."""
    file = open_file(tmp_path / "file.db")
    with pytest.raises(sqlite3.IntegrityError) as caught, file.write() as db:
        db.execute("INSERT INTO notes VALUES (NULL)")
    assert not isinstance(caught.value, BulkheadError)
    file.close()


def test_descriptors_after_refusals(tmp_path: Path) -> None:
    """A refused opening leaves no file open."""
    path = tmp_path / "file.db"
    path.write_bytes(b"no database" * 400)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, not paths
    for _ in range(5):
        with pytest.raises(ConfigurationError):
            open_file(path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - a count, not paths
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > before
