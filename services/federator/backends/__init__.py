"""The port behind which clusters stand: submit, observe all, stop, describe; and where a cluster can hold a run back,
release and clear.

A backend is one user's view of one cluster. It decides nothing and remembers nothing that matters: what it answers is
an outcome, and what follows from it is in the log. Every call ends within a bounded time. A cluster's answer, and its
silence, is a value; an exception means a bug. It retries nothing: callers do.

What the federator relies on, and a backend must ensure:

- **A name is taken once.** Once `submit` answered `Accepted` or `Taken` for a name, every older attempt to submit that
  name must fail, for ever. OpenPAI keeps all names. Kubernetes doesn't: there a submission is *held*, and nothing of it
  runs before it is released by its UID, which the log has by then. A submission that comes late makes something that
  nobody releases; it is seen in a list, and cleared.
- **The body is sent as it is.** It bears the owner's marker already, under `MARKER` in ``extras`` (OpenPAI) or as an
  annotation (Kubernetes). `describe` reads the marker back.
- **`running` means that an attempt runs.** A cluster that calls a run RUNNING while it dies or waits for its next attempt
  (OpenPAI: ``subState`` is not ``AttemptRunning``) is translated: `WAITING` before an attempt, `STOPPING` behind one.
- **A definite answer is definite.** `NotSent` only when nothing can have reached the cluster; whatever else ends without
  an answer (a time-out, a connection that broke, a 5xx) is `InDoubt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import msgspec

MARKER = "dev.muster.federator"
"""The key of the ownership marker: an `Owner` as a mapping of strings."""

WAITING, RUNNING, STOPPING, UNKNOWN = "waiting", "running", "stopping", "unknown"
SUCCEEDED, FAILED, STOPPED = "succeeded", "failed", "stopped"
GONE = "gone"
"""Of a run that is not there any more: no backend lists one (`services.federator.rules.gone`)."""
TERMINAL = frozenset((SUCCEEDED, FAILED, STOPPED, GONE))
"""Nothing of such a run uses the cluster any more, and nothing of it will again."""


LONGEST_WORD = 255
"""Characters of a word that a cluster says and the log keeps."""
Word = Annotated[str, msgspec.Meta(max_length=LONGEST_WORD)]


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a run is. A run without exactly this marker is foreign and never touched."""

    federation: Word
    """The name of the federation's log."""
    job: Word
    """The UID of the federated job."""
    cluster: Word
    """The alias."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What is submitted; each repetition is the same bytes."""

    name: str
    body: bytes
    """The specialised job, as YAML, with the owner's marker."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its cluster shows it. Equal while nothing changed: nothing in it moves by itself."""

    name: str
    uid: str
    """The identity of the object; empty where the name is the identity (OpenPAI)."""
    state: str
    """WAITING, RUNNING, STOPPING, UNKNOWN, or one of `TERMINAL`."""
    attempt: int
    """Which of the cluster's own attempts; guard time begins anew with each."""
    started_ms: int
    """When this attempt began to run, epoch milliseconds by the cluster's own clock; 0 where it does not say."""
    held: bool = False
    """Whether nothing of it runs before it is released (Kubernetes)."""
    placed: bool = False
    """Whether something of it has a node while it waits (Kubernetes): it is about to run, or on its way out."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of this user that the cluster has; a name that is missing is not there (yet)."""

    runs: tuple[Run, ...]
    clock_ms: int
    """The cluster's own clock when it answered, epoch milliseconds (HTTP: ``Date``); 0 where it does not say."""
    held: tuple[Described, ...] = ()
    """Of these runs those that are held, and whose they are."""


class Unchanged(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster was not listed: its own log vouches that its last list still says how its runs are."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """`submit`: the name is taken now, by this submission. `stop`: the cluster means to stop the run, some time."""

    uid: str
    """As in `Run`."""
    held: bool = False
    """`submit`: whether nothing of it runs before it is released."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """`submit`: there is a job of this name already (409), an earlier attempt of ours or a foreign one: `describe` it."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A definite no to this attempt (4xx); nothing came of it. It says nothing of earlier attempts in doubt, unless
    it is about the content."""

    code: str
    """The cluster's own word: InvalidProtocolError, ForbiddenUserError, …; else ``HTTP 404``."""
    message: str
    """At most 500 characters; never a token."""
    of_content: bool
    """Whether the same bytes are refused for what they are (400), so that no earlier attempt was accepted either, unless
    `describe` finds it: what a cluster takes may change."""


class Limited(msgspec.Struct, frozen=True, kw_only=True):
    """429: nothing came of it; not again before that."""

    retry_after_ms: int


class NotSent(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can have reached the cluster: connection refused, no address, the client's own limit, no credentials."""

    reason: str
    retry_after_ms: int = 0
    """Until the client's own limit leaves room."""


class InDoubt(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody knows what came of it, or still will: no answer, half an answer, a 5xx."""

    reason: str


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster answered, and knows no such name (404). An attempt in doubt may still land."""


class Silent(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster did not say: out of reach, 5xx, 401, 429, a page of the list that failed."""

    reason: str
    retry_after_ms: int = 0


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """One job, and whose it is."""

    run: Run
    owner: Owner | None
    """None: no marker that can be read, a foreign job."""


Submitted = Accepted | Taken | Refused | Limited | NotSent | InDoubt
Stopped = Accepted | Absent | Refused | Limited | NotSent | InDoubt


class Backend(Protocol):
    """One user's view of one cluster."""

    async def submit(self, submission: Submission) -> Submitted:
        """Ask the cluster to take the job under this name."""
        ...

    async def observe(self) -> Listing | Silent:
        """All of the user's jobs, by one list (as many pages as it has): complete, or `Silent`."""
        ...

    async def stop(self, name: str, uid: str) -> Stopped:
        """Ask the cluster to end this run; idempotent. Only for runs that are known to be ours; `uid` as in `Run`, a
        precondition where the cluster honours one."""
        ...

    async def describe(self, name: str) -> Described | Absent | Silent:
        """One job and its marker."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Holding(Backend, Protocol):
    """A cluster whose submissions are held, and whose names are free again when what had them is cleared."""

    async def release(self, submission: Submission, uid: str) -> Stopped:
        """Let what was accepted with this UID run; idempotent. `Accepted`: it may; `Absent`: it is gone, or stopped."""
        ...

    async def is_gone(self, name: str, uid: str) -> bool:
        """Whether nothing of the run of this UID is there any more, nor ever will be; False where nobody can say."""
        ...

    async def clear(self, name: str, uid: str) -> Stopped:
        """Remove what is left of a run of this UID that is stopped, over, or held; `Absent`: nothing is. Idempotent."""
        ...


Watched = Mapping[str, str]
"""Job, or what stands before the number of a Job of several → the run that it is of."""


class Log(Protocol):
    """A cluster's own log, by which it need not be listed while nothing happens."""

    async def follow(self) -> None:
        """For ever."""
        ...

    async def stirred(self) -> None:
        """Returns when the log has told something, since the last question, that a list may show."""
        ...

    async def vouches(self, watched: Watched) -> bool:
        """Whether the last list still says how these runs are, as of this question."""
        ...

    async def listed(self, backend: Backend) -> Listing | Silent:
        """What the cluster itself says."""
        ...


class Reach(NamedTuple):
    """How to reach an account: a user on a cluster."""

    backend: Backend
    poll_s: float
    """Between two lists, or questions to the cluster's log."""
    log: Log | None = None
