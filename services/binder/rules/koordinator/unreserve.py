"""Seed 002, GangPlugin, Un-reserve; After Gang.

    `WaitTime` is the max wait time since first pod comes to permit stage. If `WaitTime` is timeout, scheduler will roll
    back all assumed pods, update each pod's annotation with `gang.scheduling.koordinator.sh/timeout=true`, and won't
    schedule these pods anymore.

    When permit stage is timeout, we will give an annotation […] to all the pods belong to the Gang and will release the
    resource of all the assumed pods. The Gang will not be scheduled anymore, user should manually handle the timeout
    event.

The release is seed 000's (`coscheduling.unreserve`, Timeout); the time runs from the first pod in permit on
(`verdicts.permit_due`). What comes with it is one event, which is the intent to annotate as well. From its place on the
gang has timed out, whether the annotations are written yet or not; what ends that stands in `services.state.timeouts`.

Where the text is silent: the gangs of a group fail together, as they would have started together, so that the pods of all
of them are annotated, and the longest of their waiting times counts. Pods that run are annotated, too ("all the pods");
those that are on their way out or have ended are not. Pods that come later have no annotation and wait with the others,
because the gang is planned as a whole. The later code tries again by itself; the text is followed.
"""

from __future__ import annotations

from events import GangReleased, GangTimedOut
from services.state import commits, membership, timeouts
from services.state.fold import State
from services.state.records import BOUND, PENDING, Group


def timed_out(state: State, group: Group, released: GangReleased) -> list[GangTimedOut | GangReleased]:
    """The release of held pods, and before it that a Koordinator gang ran out of time, where that is why.

    Of a gang of very many pods some are named (`commits.PODS_NAMED`), and the others by the next decisions: it holds its
    room until all are.
    """
    if released.reason != "Timeout" or not timeouts.rules_apply(state, group):
        return [released]
    pods = []
    for uid in membership.members(state, group):
        pod = state.pods[uid]
        if pod.status in (PENDING, BOUND) and not timeouts.says(pod.fact):
            pods.append((uid, pod.resource_version))
    if len(pods) > commits.PODS_NAMED:
        pods = [(uid, version) for uid, version in pods if not timeouts.named(state, uid)]
        if not pods:
            return [released]
    over = GangTimedOut(group=group.key, pods=tuple(pods[: commits.PODS_NAMED]))
    return [over, released] if len(pods) <= commits.PODS_NAMED else [over]
