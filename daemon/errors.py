"""The error tree, sorted by whose problem each one is, and the exit statuses.

Core. The document's errors end in the dead-letter queue, the world's in a release with back-off, the
operator's in a refused start with a status that systemd does not restart. A bug is an AssertionError
and is caught nowhere. Messages read "cannot X: Y", then what to do.
"""

from __future__ import annotations

from enum import IntEnum

from daemon.model import Cause


class ExitStatus(IntEnum):
    """Exit statuses of `bulkhead`; 10 to 19 are configuration, which a restart does not cure."""

    #: Everything asked for was done.
    DONE = 0
    #: At least one document failed, or an audit found something; the output names it.
    DOCUMENT_FAILED = 1
    #: The command line could not be understood.
    USAGE = 2
    #: A setting is missing, unknown, out of range or contradicts another.
    CONFIGURATION = 10
    #: A part of the declared engine is missing or is another than declared.
    ENGINE = 11
    #: The queue, bucket or ledger named in the settings does not exist or refuses us.
    RESOURCE = 12
    #: Another instance holds the lock; the message names its pid, host and age.
    ALREADY_RUNNING = 20
    #: The world did not answer long enough that work could begin.
    UNAVAILABLE = 21
    #: Interrupted (Ctrl+C); what was finished is kept.
    INTERRUPTED = 130


class BulkheadError(Exception):
    """Root of everything that is raised on purpose."""


class DocumentError(BulkheadError):
    """This document cannot be converted; `cause` says why."""

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


class WorldError(BulkheadError):
    """Something outside did not answer as it should; waiting may cure it. `cause` says what."""

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


class LeaseLostError(WorldError):
    """Someone else may work on the document now: stop, and publish nothing."""

    def __init__(self, detail: str) -> None:
        super().__init__(Cause.LEASE_LOST, detail)


class OperatorError(BulkheadError):
    """A person must change something before this can work; ends the command with `status`."""

    status = ExitStatus.CONFIGURATION


class ConfigurationError(OperatorError):
    """A setting is missing, unknown, out of range or contradicts another."""


class EngineError(OperatorError):
    """A part of the declared engine is missing or is another than declared; the message names the package."""

    status = ExitStatus.ENGINE


class ResourceError(OperatorError):
    """A queue, bucket, folder or ledger that the settings name does not exist or refuses us."""

    status = ExitStatus.RESOURCE


class AlreadyRunningError(OperatorError):
    """Another instance holds the lock."""

    status = ExitStatus.ALREADY_RUNNING


class ProtocolError(BulkheadError):
    """A child sent bytes that are no frame, a frame out of order, or more than the limit."""
