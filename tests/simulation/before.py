"""What the witness remembers of the state from before a commit."""

from __future__ import annotations

from services.state import membership, timeouts
from services.state.fold import State


class Before:
    """What of the state a commit is judged by, as it was before it."""

    def __init__(self, state: State, decides: bool) -> None:
        self.epoch, self.owners = state.epoch, state.owners
        gangs = state.gangs.items() if decides else ()
        self.group_of = {key: gang.group for key, gang in gangs}
        self.free = {key for key, gang in gangs if membership.rules_off(gang)}
        self.timed_out = {key for key, gang in gangs if timeouts.gang_stands(state, gang)}
        self.ticked_ns = {writer: clock.time_ns for writer, clock in state.clocks.items()}
        self.held_since = {key: state.groups[key].held_since for key in state.holding}
        self.binder_waits = "binder" in state.clocks and bool(state.clocks["binder"].armed)
        self.gangs: dict[str, str] = {}
        """UID → its gang; of the pods that the commit has facts about, as far as these were looked at."""
