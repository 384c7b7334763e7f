"""Seed 001, "First-Available-Cluster scheduling" and "FAC with priority": the rules, with the text's sentence where it
has one, and what was decided where it is silent.

 R1. Submitted to all. "The scheduler submits the job to all the clusters and periodically query the status of them."
     One event is the intent for all. A cluster that cannot be reached is asked again; nobody waits for it.
 R2. Guard time. "When one of the jobs is successfully scheduled (to RUNNING state for a guard time)". It is the log time
     during which the cluster answered and one attempt ran, from the answer that first shows it. Silence, ours or the
     cluster's, earns nothing and takes nothing back; another attempt begins anew.
 R3. First available. "the scheduler will cancel (kill) all other jobs and return the scheduled job and corresponding
     cluster to user." With equal priorities this is all there is.
 R4. Several at once. "If more than one jobs are scheduled, the scheduler will keep only the one entering RUNNING state
     earliest, and cancel others." At once is what is found in one look: the highest priority, then the earliest start
     (by our own clock, as near as the cluster's clock tells its age), then the alias.
 R5. Lower priorities. "When a job is successfully scheduled in cluster C_i with priority p_i, then all jobs submitted to
     clusters whose priority is smaller than p_i will be cancelled intermediately" (read: immediately). Equal ones are
     FAC's "all other jobs" and are cancelled as well.
 R6. Extra time. "then C_j's job will not be cancelled until (p_j-p_i)*timeScale later": later than the end of C_i's guard
     time, in log time.
 R7. Within it. "If C_j's job is successfully scheduled in this time": its guard time ends within it, or with it. That it
     is over is decided on an answer of C_j's from after its end, or while C_j is silent.
 R8. After a switch. The text's sentence holds for each cluster that is scheduled: extra times begin anew, from the end of
     the new one's guard time, with the new difference. So they never end later than before.
 R9. The holder is silent. Nobody is cancelled for it: extra times do not end before it answers again, and whoever of
     higher priority is scheduled meanwhile takes over.
R10. It succeeds before its guard time ends, or while it is being cancelled. While nothing is decided it is the winner at
     once, whatever the priorities: nothing is worth running twice.
R11. It fails, or is stopped by others, before it holds: out of the race. The others go on. So is one whose submission or
     release is refused, whoever says so: a proxy's 302, 401, 404 or 413 counts like the server's own. One that is not
     about the job's content, as 400 is, counts when it was repeated for 20 s. A 5xx, a 429 and silence do not.
R12. The holder is lost before the decision: the race is open again among those that are left. What was cancelled stays
     cancelled.
R13. Nobody is left: the job is placed nowhere. It is not submitted again.
R14. A cluster that does not answer earns no guard time and is not elected. As a loser it stays possibly running.
R15. After the decision. It is final. How the winner's run ends is the job's end; nothing is started again.
R16. A submission in doubt is repeated with the same content until the answer is definite, even when it is not wanted any
     more: then it is stopped. So whatever was sent before must fail, however late it arrives.
R17. A name that is taken. What somebody else has is left alone: the job gets the next name there, at most three.
R18. Settled. Only when each loser was seen to have ended, or can never come to be. One that runs again, as its cluster
     was restored to an earlier moment, is stopped again, and the job settles anew.
R19. Cancelled by its user. Every run is stopped, the winner's as well.
R20. Gone. On a cluster that gives runs identities, one that is not there any more, with nothing of it left, has ended,
     unless another attempt may still land and run. Then, and on clusters without identities, it stays possibly running.
R21. Given up. An operator may declare that nothing of a job runs on a cluster, or ever will. It counts as ended from
     there on, nothing more is asked of the cluster for it, and the log says who declared it and why. It is refused while
     the cluster answers and shows the run, and while a federator that has just begun does not know whether it does.
R22. Forgotten. A job that is settled, whose winner ended and of which nothing is left to be cleared, is over. The last
     1,024 that are over are known; those before are forgotten, and their names are free. What was given up stays.

`guard` has R2 and R4's order, `priority` R6 to R9, `race` the rest of the decision, `ending` R10, R13, R18 and R19,
`names` R17, `returned` R18 where a cluster was restored, `gone` R20 and R21, `forgotten` R22. The life of a place, with
R16, is the table `services.federator.records.TRANSITIONS`.

Each rule has tests that begin with its number, as `test_r7_…`: R1 to R15 in `tests/federator/test_rules.py`, R16 to R21
in `test_places.py`, R22 in `test_forgotten.py`. `tests/federator/audit.py` holds a whole history against them, and
`services.federator.explain` names the rule behind each line of `muster job explain`.
"""

from __future__ import annotations

from events import Event
from services.federator.records import RACING, SETTLED, Clusters, Job
from services.federator.rules import ending, names, race


def verdict(job: Job, clusters: Clusters, now_ns: int) -> list[Event]:
    """What is to be said of a job now; nothing, most of the time. Saying it changes what is to be said."""
    if job.phase == SETTLED:
        return []
    if job.phase == RACING and (said := [*names.renamed(job), *race.decided(job, clusters, now_ns)]):
        return said
    return [*ending.unwanted(job), *ending.settled(job)]
