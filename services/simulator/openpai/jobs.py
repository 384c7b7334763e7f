"""One OpenPAI cluster: whose jobs it has, how they live, what it answers. No transport; the clock is given.

A job's life is a list of steps, each with the moment from which it holds. It is made at submission and cut off by a
stop; what a job looks like now is the last step that has come. So nothing has to run between two requests, and a test
that moves the clock has moved every job.

Facts about microsoft/pai that this keeps to (rest-server, database-controller, frameworkcontroller):

- A stop is an intent: for `Life.notice_ms` the job goes on, may begin to run, or end by itself. Then its attempt
  dies, for `Life.dying_ms`; the state is STOPPING now, and STOPPED in the end.
- An attempt that ends by itself dies in the same way, but reads RUNNING meanwhile, as only ``subState`` tells. With
  retries left the next attempt waits like the first.
- Times have whole seconds. ``launchedTime`` is that of the first attempt; of a job that never ran it is the time at
  which it was stopped.
- Names stay, and a name that is taken is refused.
- ``config`` shows what was submitted, but for the lines of ``secrets`` (and only if they are lines of their own).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import md5
from typing import Any

from services.documents import NotYaml, load_all
from services.simulator.openpai import schema

Object = dict[str, Any]

STOPPED_BY_USER = -210
NEVER = 1 << 62
MOST_ATTEMPTS = 100
DEFAULT_LIMIT, MAX_LIMIT = 5_000, 50_000
_STATES = {
    "AttemptCreationPending": "WAITING",
    "AttemptCreationRequested": "WAITING",
    "AttemptPreparing": "WAITING",
    "AttemptRunning": "RUNNING",
}
_SECRETS = re.compile(r"(^secrets:)[\s\S]*?(^\w)", re.MULTILINE)
_ORDERS: dict[str, Callable[[Object], Any]] = {
    "jobName": lambda job: job["name"],
    "submissionTime": lambda job: job["submissionTime"],
    "username": lambda job: job["username"],
    "vc": lambda job: job["virtualCluster"],
    "retries": lambda job: job["retries"],
    "totalTaskNumber": lambda job: job["totalTaskNumber"],
    "totalGpuNumber": lambda job: job["totalGpuNumber"],
    "state": lambda job: job["state"],
    "completionTime": lambda job: job["completedTime"] or NEVER,
}


class Refusal(Exception):
    """An answer other than success. `code` is empty where the server gives none."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How a job lives, in ms of the cluster's clock."""

    created_ms: int = 0
    """From its submission until Kubernetes has it."""
    waiting_ms: int = 0
    """From its submission, or the end of the attempt before, until an attempt runs."""
    running_ms: int | None = None
    """How long an attempt runs; None: until it is stopped."""
    dying_ms: int = 0
    """From the end of an attempt until all of its containers are gone."""
    notice_ms: int = 0
    """From the answer to a stop until anything happens."""
    exit_codes: tuple[int, ...] = (0,)
    """Of the attempts; the last for all that follow."""

    def exit_code(self, attempt: int) -> int:
        return self.exit_codes[min(attempt, len(self.exit_codes) - 1)]


@dataclass(frozen=True, slots=True)
class Step:
    """From `at_ms` on."""

    at_ms: int
    sub_state: str
    attempt: int
    exit_code: int | None = None

    @property
    def state(self) -> str:
        stopped = self.exit_code == STOPPED_BY_USER
        if self.sub_state == "Completed":
            return "STOPPED" if stopped else "FAILED" if self.exit_code else "SUCCEEDED"
        return _STATES.get(self.sub_state) or ("STOPPING" if stopped else "RUNNING")


@dataclass(slots=True)
class Job:
    """A job that the cluster has, for ever."""

    user: str
    config: str
    protocol: Object
    life: Life
    submitted_ms: int
    steps: list[Step] = field(default_factory=list)
    uncut: list[Step] = field(default_factory=list)
    """As `steps`, without the stop."""
    stop_ms: int | None = None

    @property
    def name(self) -> str:
        return str(self.protocol["name"])

    def now(self, now_ms: int) -> Step:
        return self.steps[max(0, bisect_right(self.steps, now_ms, key=lambda step: step.at_ms) - 1)]

    def summary(self, now_ms: int) -> Object:
        """As lists show it."""
        step, roles = self.now(now_ms), list(self.protocol["taskRoles"].values())
        launched, completed = self.launched_ms(now_ms), self.completed_ms(now_ms)
        created = self.submitted_ms + self.life.created_ms
        counts = [role.get("instances", 1) for role in roles]
        gpus = [role["resourcePerInstance"]["gpu"] * count for role, count in zip(roles, counts, strict=True)]
        hived = self.protocol.get("extras", {}).get("hivedScheduler")
        return {
            "debugId": md5(f"{self.user}~{self.name}".encode(), usedforsecurity=False).hexdigest(),
            "name": self.name,
            "username": self.user,
            "state": step.state,
            "subState": step.sub_state,
            "executionType": "START" if self.stop_ms is None else "STOP",
            "tags": [],
            "retries": step.attempt,
            "retryDetails": {"user": step.attempt, "platform": 0, "resource": 0},
            "retryDelayTime": None,
            "submissionTime": _whole(self.submitted_ms),
            "createdTime": _whole(created) if now_ms >= created else None,
            "launchedTime": _whole(completed if launched is None else launched),
            "completedTime": _whole(completed),
            "appExitCode": step.exit_code,
            "virtualCluster": _virtual_cluster(self.protocol),
            "totalGpuNumber": sum(gpus),
            "totalTaskNumber": sum(counts),
            "totalTaskRoleNumber": len(roles),
            "jobPriority": hived.get("jobPriorityClass") if isinstance(hived, dict) else None,
        }

    def detail(self, now_ms: int) -> Object:
        """As a query for it alone shows it."""
        summary, step = self.summary(now_ms), self.now(now_ms)
        own = [one for one in self.steps if one.attempt == step.attempt and one.at_ms <= now_ms]
        running = next((one.at_ms for one in own if one.sub_state == "AttemptRunning"), None)
        ended = next((one.at_ms for one in own if one.exit_code is not None), None)
        status = {key: value for key, value in summary.items() if key not in _OF_THE_JOB}
        status |= {
            "attemptId": step.attempt,
            "attemptState": step.state,
            "appProgress": 0 if ended is None else 1,
            "appCreatedTime": _whole(own[0].at_ms),
            "appLaunchedTime": _whole(ended if running is None else running),
            "appCompletedTime": _whole(ended),
        }
        roles = {name: {"taskRoleStatus": {"name": name}, "taskStatuses": []} for name in self.protocol["taskRoles"]}
        return {key: summary[key] for key in _OF_THE_JOB} | {"jobStatus": status, "taskRoles": roles}

    def launched_ms(self, now_ms: int) -> int | None:
        """When it first ran."""
        return next((s.at_ms for s in self.steps if s.sub_state == "AttemptRunning" and s.at_ms <= now_ms), None)

    def completed_ms(self, now_ms: int) -> int | None:
        step = self.now(now_ms)
        return step.at_ms if step.sub_state == "Completed" else None


_OF_THE_JOB = ("debugId", "name", "tags", "jobPriority")


def _whole(time_ms: int | None) -> int | None:
    """As Kubernetes has times: in whole seconds."""
    return None if time_ms is None else time_ms // 1000 * 1000


def _virtual_cluster(protocol: Object) -> str:
    return (protocol.get("defaults") or {}).get("virtualCluster") or "default"


def lived(life: Life, submitted_ms: int, retries: int) -> list[Step]:
    """The steps of a job that nobody stops."""
    at, steps = submitted_ms, []
    for attempt in range(min(retries, MOST_ATTEMPTS - 1) + 1):
        steps.append(Step(at, "AttemptCreationPending", attempt))
        created = min(life.created_ms if attempt == 0 else 0, life.waiting_ms)
        steps.append(Step(at + created, "AttemptPreparing", attempt))
        at += life.waiting_ms
        steps.append(Step(at, "AttemptRunning", attempt))
        if life.running_ms is None:
            return steps
        code = life.exit_code(attempt)
        at += life.running_ms
        steps.append(Step(at, "AttemptDeletionPending", attempt, code))
        steps.append(Step(at, "AttemptDeleting", attempt, code))
        at += life.dying_ms
        steps.append(Step(at, "AttemptCompleted", attempt, code))
        if code == 0:
            break
    steps.append(Step(at, "Completed", steps[-1].attempt, steps[-1].exit_code))
    return steps


def stopped(steps: list[Step], stop_ms: int, life: Life) -> list[Step]:
    """What becomes of them after a stop at `stop_ms`."""
    cut = stop_ms + life.notice_ms
    kept = [step for step in steps if step.at_ms <= cut]
    last = kept[-1]
    if last.sub_state == "Completed":
        return kept
    if last.exit_code is not None:  # it dies already, and is not tried again
        rest = [step for step in steps[len(kept) :] if step.attempt == last.attempt]
        ended = [step for step in (*kept, *rest) if step.sub_state != "Completed"]
        return [*ended, replace(ended[-1], sub_state="Completed")]
    dying = replace(last, at_ms=cut, sub_state="AttemptDeletionPending", exit_code=STOPPED_BY_USER)
    end = replace(dying, at_ms=cut + life.dying_ms, sub_state="AttemptCompleted")
    return [*kept, dying, end, replace(end, sub_state="Completed")]


class Cluster:
    """One cluster as its REST server shows it.

    `tokens`: bearer token → user. `clock`: epoch milliseconds by the cluster's own clock. `life`: of jobs that
    `lives` does not name. `admins` may stop everybody's jobs. `virtual_clusters`, `storages`: what there is; None: all.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        tokens: Mapping[str, str],
        *,
        life: Life | None = None,
        admins: Iterable[str] = (),
        virtual_clusters: Iterable[str] | None = None,
        storages: Iterable[str] | None = None,
    ) -> None:
        self.clock, self.tokens, self.life = clock, dict(tokens), life or Life()
        self.lives: dict[str, Life] = {}
        self.jobs: dict[tuple[str, str], Job] = {}
        self._admins = frozenset(admins)
        self._virtual_clusters = None if virtual_clusters is None else frozenset(virtual_clusters)
        self._storages = None if storages is None else frozenset(storages)
        self._late: list[tuple[int, Callable[[], object]]] = []

    # --------------------------------------------------------------------------------------------------------- effects

    def submit(self, user: str, body: str) -> Object:
        """Raises Refusal."""
        try:
            documents = load_all(body)
            if len(documents) > 1:
                raise NotYaml("expected a single document in the stream, but found more")
        except NotYaml as error:
            raise Refusal(500, "", str(error)) from error  # whatever the YAML parser throws is nobody's HTTP error
        protocol: Any = documents[0] if documents else None
        if wrong := schema.validate(protocol):
            raise Refusal(400, "InvalidProtocolError", "; ".join(wrong))
        name, now_ms = protocol["name"], self._now()
        if (user, name) in self.jobs:
            raise Refusal(409, "ConflictJobError", f"Job {user}~{name} already exists.")
        self._check_access(user, protocol)
        life = self.lives.get(name, self.life)
        steps = lived(life, now_ms, protocol.get("jobRetryCount", 0))
        config = _SECRETS.sub(r'\1 "******"\n\2', f"{body}\nZ", count=1)[:-2]
        self.jobs[user, name] = Job(user, config, protocol, life, now_ms, steps, steps)
        return {"status": 202, "message": f"Update job {name} for user {user} successfully."}

    def _check_access(self, user: str, protocol: Object) -> None:
        virtual = _virtual_cluster(protocol)
        if self._virtual_clusters is not None and virtual not in self._virtual_clusters:
            raise Refusal(403, "ForbiddenUserError", f"User {user} is not allowed to do operation in {virtual}")
        for name in _storages(protocol):
            if self._storages is not None and name not in self._storages:
                raise Refusal(404, "NoStorageError", f"Storage {name} is not found.")

    def execute(self, user: str, framework: str, value: Any) -> Object:
        """Start or stop: an intent. Raises Refusal."""
        job, now_ms = self._job(framework), self._now()
        if user not in (job.user, *self._admins):
            raise Refusal(403, "ForbiddenUserError", f"User {user} is not allowed to execute job {framework}.")
        if value == "STOP" and job.stop_ms is None:
            job.stop_ms, job.steps = now_ms, stopped(job.uncut, now_ms, job.life)
        elif value == "START" and job.stop_ms is not None and now_ms < job.stop_ms + job.life.notice_ms:
            job.stop_ms, job.steps = None, job.uncut
        return {"status": 202, "message": f"Execute job {framework} successfully."}

    def later(self, in_ms: int, effect: Callable[[], object]) -> None:
        """Do this in a while, whatever comes of it: a request whose client went away."""
        self._late.append((self.clock() + in_ms, effect))

    # --------------------------------------------------------------------------------------------------------- queries

    def listed(self, query: Mapping[str, str]) -> Any:
        """Raises Refusal."""
        now_ms = self._now()
        offset, limit = _integer(query.get("offset", "0")), _integer(query.get("limit", str(DEFAULT_LIMIT)))
        if limit > MAX_LIMIT:
            raise Refusal(400, "InvalidParametersError", f"Limit exceeds max number {MAX_LIMIT}.")
        found = [job.summary(now_ms) for job in self.jobs.values()]
        for asked, key in (("username", "username"), ("vc", "virtualCluster"), ("state", "state")):
            if asked in query:
                wanted = query[asked].split(",")
                found = [job for job in found if job[key] in wanted]
        if keyword := query.get("keyword"):
            searched = ("username", "name", "virtualCluster")
            found = [job for job in found if any(keyword in job[key] for key in searched)]
        by, _, direction = query.get("order", "").partition(",")
        if by not in _ORDERS or direction not in ("ASC", "DESC"):
            by, direction = "submissionTime", "DESC"
        found.sort(key=_ORDERS[by], reverse=direction == "DESC")
        page = found[offset : offset + limit]
        return {"totalCount": len(found), "data": page} if query.get("withTotalCount") == "true" else page

    def get(self, framework: str) -> Object:
        """Raises Refusal."""
        return self._job(framework).detail(self._now())

    def config(self, framework: str) -> str:
        """Raises Refusal."""
        return self._job(framework).config

    def running(self) -> list[Job]:
        """Jobs of which an attempt has containers: it runs, or dies."""
        now_ms = self._now()
        steps = {key: job.now(now_ms) for key, job in self.jobs.items()}
        return [self.jobs[key] for key, step in steps.items() if step.state in ("RUNNING", "STOPPING")]

    def _job(self, framework: str) -> Job:
        self._now()
        user, _, name = framework.partition("~")
        job = self.jobs.get((user, name))
        if job is None:
            raise Refusal(404, "NoJobError", f"Job {framework} is not found.")
        return job

    def _now(self) -> int:
        """The clock, after what came late has come."""
        now_ms = self.clock()
        due = [late for late in self._late if late[0] <= now_ms]
        self._late = [late for late in self._late if late[0] > now_ms]
        for _, effect in due:
            try:
                effect()
            except Refusal:
                continue  # nobody hears it any more
        return now_ms


def _storages(protocol: Object) -> list[str]:
    extras = protocol.get("extras") or {}
    named = [one.get("name") for one in extras.get("storages") or () if isinstance(one, dict)]
    for plugin in extras.get("com.microsoft.pai.runtimeplugin") or ():
        if isinstance(plugin, dict) and plugin.get("plugin") == "teamwise_storage":
            named += (plugin.get("parameters") or {}).get("storageConfigNames") or []
    return [name for name in named if isinstance(name, str)]


def _integer(text: str) -> int:
    """What is no number reaches the database, which does not know it either. Raises Refusal."""
    if not text.isdecimal():
        raise Refusal(500, "", 'column "nan" does not exist')
    return int(text)
