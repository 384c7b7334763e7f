"""What an API server is and serves, in one request each: its version, and the aggregated discovery of Kubernetes 1.27 and
later.

An older server answers with its groups and their versions alone. Then every resource of a version that it serves may be
there, and only asking for it tells.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from services.kubernetes import nesting
from services.kubernetes.objects import Metadata, Object
from services.kubernetes.resources import Resource

PATH, VERSION = "/apis", "/version"
ACCEPT = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)


class Release(Object):
    """Of the server's version 1.36.3 the 36; some providers write ``36+``."""

    minor: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,4}\+?$")]


class _Subresource(Object):
    subresource: str = ""


class _Resource(Object):
    resource: str = ""
    subresources: list[_Subresource] | None = None


class _Version(Object):
    version: str = ""
    resources: list[_Resource] | None = None


class _Group(Object):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    name: str = ""
    versions: list[_Version] | None = None


class _Answer(Object):
    """Both forms: ``items`` of the aggregated one, ``groups`` of the other."""

    items: list[_Group] | None = None
    groups: list[_Group] | None = None


_decoder = msgspec.json.Decoder(_Answer)


class Served:
    """What is there: apiVersion → resources and their subresources (``podgroups``, ``podgroups/status``)."""

    def __init__(self, resources: dict[str, frozenset[str] | None]) -> None:
        self._resources = resources
        """None: which ones, this server does not say."""

    def has(self, resource: Resource, subresource: str = "") -> bool:
        """Whether it is served, as far as the server says."""
        served = self._resources.get(resource.api_version, frozenset())
        return served is None or (f"{resource.plural}/{subresource}" if subresource else resource.plural) in served

    def tells(self, resource: Resource) -> bool:
        """Whether the server says what there is in the resource's version, if that is there."""
        return self._resources.get(resource.api_version, frozenset()) is not None

    def versions(self, resource: Resource) -> list[str]:
        """The apiVersions in which its API group has it, as far as the server says."""
        group = resource.api_version.partition("/")[0]
        return sorted(
            api_version
            for api_version, served in self._resources.items()
            if api_version.partition("/")[0] == group and resource.plural in (served or ())
        )


def served(body: bytes) -> Served:
    """Of an answer. Raises `events.wire.UNDECODABLE`."""
    answer = nesting.decode(_decoder, body)
    found: dict[str, frozenset[str] | None] = {}
    for group in answer.items or ():
        for version in group.versions or ():
            found[f"{group.metadata.name}/{version.version}"] = frozenset(_names(version))
    for group in answer.groups or ():
        for version in group.versions or ():
            found[f"{group.name}/{version.version}"] = None
    return Served(found)


def _names(version: _Version) -> list[str]:
    found = []
    for each in version.resources or ():
        found.append(each.resource)
        found += [f"{each.resource}/{sub.subresource}" for sub in each.subresources or ()]
    return found
