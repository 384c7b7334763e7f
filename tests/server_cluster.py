"""Three embedded servers that are one NATS cluster, as users run it: routes between them, and TLS where files are given.

They listen on loopback. Ports are bound here, without being listened on, for as long as the object lives: routes name
them before any server is up.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from events.server import EmbeddedServer, quoted, reserve_port

NAMES = ("one", "two", "three", "four", "five")


class TlsFiles(NamedTuple):
    """Paths of PEM files: who is trusted, the servers' certificate for 127.0.0.1, and its key."""

    authority: Path
    certificate: Path
    key: Path

    def block(self, more: str = "") -> str:
        """nats-server's ``tls`` block."""
        files = {"ca_file": self.authority, "cert_file": self.certificate, "key_file": self.key}
        return "tls { " + ", ".join(f"{name}: {quoted(path)}" for name, path in files.items()) + f"{more} }}"


class ServerCluster:
    """`size` servers, by name in `servers`. `start` them all, or use it as a context.

    `extra` is configuration text that all of them get. With `tls`, clients and routes are encrypted, and a route must
    show a certificate. Streams are placed by unique tags and have a JetStream domain of the cluster's name, `name`.
    """

    def __init__(
        self, store: Path | str, *, size: int = 3, name: str = "nats", extra: str = "", tls: TlsFiles | None = None
    ) -> None:
        self._reserved = [reserve_port() for _ in range(2 * size)]
        ports = [reserved.getsockname()[1] for reserved in self._reserved]
        clients, routes = ports[:size], ports[size:]
        urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        self.servers: dict[str, EmbeddedServer] = {}
        for server, port, route in zip(NAMES, clients, routes, strict=False):
            lines = [
                f'server_name: {server}, server_tags: ["zone:{server}"]',
                f'cluster {{ name: {name}, listen: "127.0.0.1:{route}", no_advertise: true, routes: [{urls}]',
                tls.block(", verify: true") if tls else "",
                "}",
                tls.block() if tls else "",
                extra,
            ]
            jetstream = f'domain: {name}, unique_tag: "zone:"'
            directory = Path(store) / server
            self.servers[server] = EmbeddedServer(directory, port=port, extra="\n".join(lines), jetstream=jetstream)

    @property
    def url(self) -> str:
        """Of all of them, with commas."""
        return ",".join(server.url for server in self.servers.values())

    def start(self) -> ServerCluster:
        """Raises ServerError. JetStream answers as soon as they have found each other and chosen a leader."""
        for server in self.servers.values():
            server.start()
        return self

    def stop(self) -> None:
        """Ends those that run, stopped ones among them, and gives the ports back."""
        for server in self.servers.values():
            server.stop()
        for reserved in self._reserved:
            reserved.close()

    def __enter__(self) -> ServerCluster:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *exception: object) -> None:
        self.stop()
