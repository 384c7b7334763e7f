"""Packets that are lost between a process and the servers that it talks to, or answered by a reset.

In namespaces of one's own (`isolation`) iptables drops them: each hurt process has a group, connections carry their
initiator's group as a mark, and a rule drops what is so marked on the ports in question. TCP does the rest: what is lost
comes late, in order, or never. Elsewhere each process talks to its servers through a TCP proxy, which keeps bytes back.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import struct
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, Protocol

Loss = Literal["all", "answers", "some", "resets"]
"""Of what goes both ways all is lost; of what comes back all; of what goes both ways a good part; or a good part is
answered by a reset, as by a proxy or a load balancer, wherever the connection is just then."""
PROBABILITY = 0.4
"""Of losing a packet, where some are lost."""
RESET_NOW = struct.pack("ii", 1, 0)
"""SO_LINGER with which a close is a reset."""
CHUNK_BYTES = 1 << 16

Port = int
Rule = tuple[str, ...]
DROPS: Rule = ("DROP",)
RESETS: Rule = ("REJECT", "--reject-with", "tcp-reset")


class Network(Protocol):
    """How processes reach servers, by name and port, and what is lost on the way."""

    def group(self, name: str) -> int:
        """Under which this process must be started; 0: any."""
        ...

    async def way(self, name: str, port: Port) -> Port:
        """The port at which this process reaches the server on `port`."""
        ...

    def lose(self, name: str, ports: Sequence[Port], loss: Loss) -> object:
        """Begins now; the hurt that `heal` ends."""
        ...

    def part(self, name: str, own: Port, others: Sequence[Port]) -> object | None:
        """A server and its peers: nothing passes between them. None where that cannot be had."""
        ...

    def heal(self, hurt: object) -> None:
        """A process that is gone already is healed, too."""
        ...

    def close(self) -> None: ...


class Packets:
    """By iptables, in a network namespace of one's own. The mark on a connection is its initiator's group."""

    def __init__(self) -> None:
        self._groups: dict[str, int] = {}
        self._numbers = itertools.count(2001)

    def group(self, name: str) -> int:
        if name not in self._groups:
            number = str(next(self._numbers))
            unmarked = ("-p", "tcp", "-m", "connmark", "--mark", "0", "-m", "owner", "--gid-owner", number)
            _iptables("-A", "OUTPUT", *unmarked, "-j", "CONNMARK", "--set-mark", number)
            self._groups[name] = int(number)
        return self._groups[name]

    async def way(self, name: str, port: Port) -> Port:
        return port

    def lose(self, name: str, ports: Sequence[Port], loss: Loss) -> list[Rule]:
        mark = ("-m", "connmark", "--mark", str(self.group(name)))
        side = "--sports" if loss == "answers" else "--ports"
        chance = ("-m", "statistic", "--mode", "random", "--probability", str(PROBABILITY))
        matches = (*mark, "-m", "multiport", side, _listed(ports), *(chance if loss in ("some", "resets") else ()))
        return self._rules(RESETS if loss == "resets" else DROPS, matches)

    def part(self, name: str, own: Port, others: Sequence[Port]) -> list[Rule]:
        mark = ("-m", "connmark", "--mark", str(self.group(name)))
        outgoing, incoming = (
            (*mark, "-m", "multiport", "--ports", _listed(others)),
            ("-m", "multiport", "--ports", str(own)),
        )
        return self._rules(DROPS, outgoing, incoming)

    def heal(self, hurt: object) -> None:
        assert isinstance(hurt, list)
        for rule in hurt:
            _iptables("-D", *rule)

    def close(self) -> None:
        """The namespace goes, and the rules with it."""

    def _rules(self, what: Rule, *matches: Rule) -> list[Rule]:
        rules: list[Rule] = [("INPUT", "-p", "tcp", *match, "-j", *what) for match in matches]
        for rule in rules:
            _iptables("-A", *rule)
        return rules


def _listed(ports: Sequence[Port]) -> str:
    return ",".join(map(str, ports))


def _iptables(*words: str) -> None:
    """Tens of milliseconds. Raises CalledProcessError."""
    subprocess.run(["iptables", "-w", "10", *words], check=True, timeout=30, capture_output=True)


class Proxies:
    """Without privileges: a TCP proxy in this process for each way. Servers' own connections cannot be parted."""

    def __init__(self, seed: int) -> None:
        self._ways: dict[tuple[str, Port], Way] = {}
        self._random = random.Random(f"proxies {seed}")

    def group(self, name: str) -> int:
        return 0

    async def way(self, name: str, port: Port) -> Port:
        if (name, port) not in self._ways:
            way = self._ways[name, port] = Way(port, self._random)
            await way.open()
        return self._ways[name, port].port

    def lose(self, name: str, ports: Sequence[Port], loss: Loss) -> list[tuple[Way, Loss]]:
        hurt = [(self._ways[name, port], loss) for port in ports if (name, port) in self._ways]
        for way, _ in hurt:
            way.losses.append(loss)
        return hurt

    def part(self, name: str, own: Port, others: Sequence[Port]) -> None:
        return None

    def heal(self, hurt: object) -> None:
        assert isinstance(hurt, list)
        for way, loss in hurt:
            way.losses.remove(loss)

    def close(self) -> None:
        for way in self._ways.values():
            way.close()


class _Reset(Exception):
    """Both ends of a connection are to be reset."""


class Way:
    """One listening port before one server. What is lost is kept back until it is found again, in order, as TCP does."""

    POLL_S = 0.02
    KEPT_BACK = 0.9
    """The chance that a chunk waits so long once more, where some are lost: 0.2 s on average."""

    def __init__(self, server_port: Port, source: random.Random) -> None:
        self.port = 0
        self.losses: list[Loss] = []
        self._server_port, self._random = server_port, source
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):  # `close` cancels, and asyncio would tell it
                server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
                there = self._forward(reader, server_writer, answers=False)
                back = self._forward(server_reader, writer, answers=True)
                try:
                    await asyncio.gather(there, back)
                except _Reset:
                    for end in (writer, server_writer):
                        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_NOW)
                finally:
                    server_writer.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        """Until one side closes; then the connection ends for both."""
        while chunk := await reader.read(CHUNK_BYTES):
            while self._kept_back(answers):  # noqa: ASYNC110 - chance decides
                await asyncio.sleep(self.POLL_S)
            if "resets" in self.losses and self._random.random() < PROBABILITY:
                raise _Reset
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError

    def _kept_back(self, answers: bool) -> bool:
        if "all" in self.losses or (answers and "answers" in self.losses):
            return True
        return "some" in self.losses and self._random.random() < self.KEPT_BACK
