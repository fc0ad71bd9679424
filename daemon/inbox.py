"""What the parent's loop can be told: each kind of event, put into its inbox by one kind of thread.

Shell. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass

from daemon.heartbeat import InHand
from daemon.model import Cause, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The receiver's answer to one request; empty when nothing came."""

    messages: tuple[Message, ...] = ()
    #: Why the queue did not answer.
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFreed:
    """A slot is done with its message, one way or the other."""

    held: InHand
    #: Set when the world failed; the message was given back, or will come back by itself.
    cause: Cause | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSuspended:
    """The canary died like the documents: give everything back, and receive nothing until one converts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryEnded:
    """One canary of a suspended host has ended; whether it converted is known to `Edges.trust`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """Somebody wants us to leave; `at_once` does not wait for what is in flight."""

    at_once: bool


Event = Received | SlotFreed | HostSuspended | CanaryEnded | StopAsked
