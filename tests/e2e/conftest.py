"""Fixtures of the end-to-end tests: one control plane for all, one Muster with a log of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest

from deploy.e2e.api import Api
from deploy.e2e.build import BIN
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.native_gangs import NativeGangs, native_gangs
from deploy.e2e.processes import Process
from tests.e2e.cluster import Muster, clear, install

OUTCOME = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remembers on the item whether its test passed, for fixtures that show logs of those that did not."""
    report = yield
    if call.when == "call":
        item.stash[OUTCOME] = report.passed
    return report


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Etcd and kube-apiserver."""
    if not (BIN / "kube-apiserver").exists():
        pytest.fail("no control plane in .build/bin: run `make e2e`, or first `python -m deploy.e2e.build`")
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def native() -> NativeGangs:
    """How the control plane that is there has gangs of its own."""
    try:
        return native_gangs()
    except LookupError as error:
        pytest.skip(str(error))


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[Api]:
    """The API as its administrator, with Muster installed; the test leaves it without nodes and pods."""
    async with Api(control_plane.url, control_plane.admin_token, control_plane.certificate) as api:
        await install(api)
        yield api
        if not control_plane.processes["kube-apiserver"].alive:
            control_plane.start_apiserver()
        await clear(api)


@pytest.fixture
def kubelets(control_plane: ControlPlane, api: Api) -> Iterator[Process]:
    """KWOK, for nodes made with ``kubelet=True``."""
    kwok = control_plane.start_kubelets()
    yield kwok
    kwok.stop()


@pytest.fixture
def controllers(control_plane: ControlPlane, api: Api) -> Iterator[Process]:
    """The controllers that turn workloads into pods."""
    manager = control_plane.start_controllers(
        *(f"{kind}-controller" for kind in ("deployment", "replicaset", "statefulset", "daemonset", "job"))
    )
    yield manager
    manager.stop()


@pytest.fixture
async def muster(
    control_plane: ControlPlane, api: Api, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Muster]:
    """Muster's services, none of them started yet, over a NATS server of this test's own."""
    muster = Muster(control_plane, api, tmp_path)
    await muster.prepare()
    try:
        yield muster
    finally:
        muster.stop()
        if not request.node.stash.get(OUTCOME, False):
            muster.show_logs()
