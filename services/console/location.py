"""Which log a command means: ``nats://host:4222`` with a cluster, or the path of an exported log."""

from __future__ import annotations

from events.homes import is_server, open_log, split
from events.log import EventLog
from services import settings


async def open_location(location: str | None, cluster: str | None, *, create: bool = False) -> EventLog:
    """The log at `location` (default: the settings' NATS server). A file knows its own cluster; for NATS it is
    `cluster`, else the URL's path, else the settings'. Credentials are the settings'. Raises LogError, InvalidSetting.
    """
    chosen = settings.read({"cluster": cluster})
    location = chosen.nats_url if location is None else location
    if is_server(location):
        named = cluster or split(location)[1] or chosen.cluster
        return await open_log(location, named, create=create, replicas=chosen.log_replicas, **chosen.nats_options())
    return await open_log(location, cluster, create=create)
