"""What a task role runs on Kubernetes (`services.federator.backends.scripts`): as on OpenPAI."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from services.federator.backends.protocol import Unsupported
from services.federator.backends.scripts import OPTIONS, command, told, unreadable, written
from tests.federator.backends.sites import job

USER_SH = "#!/bin/bash\n\nset -o errexit\nset -o nounset\nset -o pipefail\n\n# user's commands here\n"
"""openpai-runtime's ``src/runtime.d/user.sh``, behind which its init writes the server's text."""


@pytest.mark.parametrize(
    ("commands", "fails"),
    [
        (["false", "echo done"], True),
        (["cd /nowhere 2>/dev/null", "true"], True),
        (["false | cat"], True),
        (['test -n "$NOT_SET"', "true"], True),
        (["[[ a == a ]]"], False),
        (["false || true", 'echo "$PAI_TASK_ROLE_COUNT $PAI_MIN_FAILED_TASK_COUNT_worker"'], False),
    ],
)
def test_commands_end_as_on_openpai(commands: list[str], fails: bool, tmp_path: Path) -> None:
    """As it was: they ran in sh without options. Where training failed and the last command did not, the task succeeded,
    here alone, and the job was placed on it (R10)."""
    made = job("train")
    spec = made["taskRoles"]["worker"]
    spec["commands"] = commands
    there = tmp_path / "user.sh"
    there.write_text(USER_SH + "\n".join(commands))
    environment = os.environ | told(made, "worker", spec, "ann")
    for run in (command(made, "worker", spec), ["/bin/bash", str(there)]):
        ended = subprocess.run(run, capture_output=True, env=environment, check=False)
        assert (ended.returncode != 0) is fails


def test_a_task_is_told_of_all_roles() -> None:
    made = job("train", instances=3, roles=2)
    made["taskRoles"]["ps"] |= {"instances": 1, "extraContainerOptions": {"shmMB": 64}}
    del made["taskRoles"]["ps"]["resourcePerInstance"]["gpu"]
    made["taskRoles"]["ps"]["completion"] = {"minFailedInstances": 1, "minSucceededInstances": -1}
    assert told(made, "worker", made["taskRoles"]["worker"], "ann") == {
        "PAI_JOB_NAME": "train",
        "PAI_USER_NAME": "ann",
        "PAI_DEFAULT_FS_URI": "",
        "PAI_TASK_ROLE_COUNT": "2",
        "PAI_TASK_ROLE_LIST": "worker,ps",
        "PAI_CURRENT_TASK_ROLE_NAME": "worker",
        "PAI_CURRENT_TASK_ROLE_TASK_COUNT": "3",
        "PAI_TASK_ROLE_TASK_COUNT_worker": "3",
        "PAI_RESOURCE_worker": "0,1,512,0",
        "PAI_MIN_FAILED_TASK_COUNT_worker": "1",
        "PAI_MIN_SUCCEEDED_TASK_COUNT_worker": "3",
        "PAI_TASK_ROLE_TASK_COUNT_ps": "1",
        "PAI_RESOURCE_ps": ",1,512,64",
        "PAI_MIN_FAILED_TASK_COUNT_ps": "1",
        "PAI_MIN_SUCCEEDED_TASK_COUNT_ps": "-1",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("s", "s"),
        (True, "true"),
        (None, ""),
        (["a", None, [1, 2]], "a,,1,2"),
        ({"a": 1}, "[object Object]"),
        (3, "3"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.25e-9, "1.25e-9"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e21, "1.5e+21"),
        ((1 << 63) - 1, "9223372036854776000"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_values_are_written_as_javascript_has_them(value: Any, text: str) -> None:
    assert written(value) == text


def rendered(said: str, **parameters: Any) -> str:
    made = job("train") | {"parameters": parameters}
    made["prerequisites"].append({"type": "data", "name": "cifar", "uri": ["a", "b"]})
    made["taskRoles"]["worker"] |= {"commands": [said], "data": "cifar"}
    (*_, script) = command(made, "worker", made["taskRoles"]["worker"])
    return script.removeprefix(OPTIONS)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("run <% $parameters.x %> <%$parameters.x%>", "run 1 1"),
        ("<% $parameters.lr %> <% $parameters.amp %> <% $parameters.list %>", "0.00001 false a,b"),
        ("<% $parameters.of.a-b.0 %> <% $data.uri[1] %> <% $data.uri %> <% $data.name %>", "7 b a,b cifar"),
        (
            "<% $parameters.null %> <%$parameters.y%> <% $data.uri[9] %>",
            "<% $parameters.null %> <% $parameters.y %> <% $data.uri.9 %>",
        ),
        (
            "<% $script.uri %> <% $nobody %> <% $secrets.x %> <% y %>",
            "<% $script.uri %> <% $nobody %> <% $secrets.x %> <% y %>",
        ),
        (
            "<% $parameters.x.y %> <% $parameters.x[0] %> <% $data.uri.first %>",
            "<% $parameters.x.y %> <% $parameters.x.0 %> <% $data.uri.first %>",
        ),
        ("<% $parameters %>", "[object Object]"),
        ("<%%> <% %>", "<%%> <% %>"),
        ("%> <% $parameters.x %> % >", "%> 1 % >"),
        ("<% $parameters.space %>run<% $parameters.space %>", "run"),
    ],
)
def test_references_are_filled_in_as_the_server_does_it(said: str, text: str) -> None:
    """rest-server's ``render``, by mustache. As it was: JSON stood there, as 1.0, 1e-05, null and ["a", "b"]."""
    given = {"x": 1.0, "lr": 1e-5, "amp": False, "null": None, "list": ["a", "b"], "of": {"a-b": [7]}, "space": " \n"}
    assert rendered(said, **given) == text


def test_a_value_of_little_text_and_much_work_is_not_written_again_and_again() -> None:
    """As it was: 200 references to one list of lists cost 28 s, at each attempt."""
    made = job("train")
    deep: list[Any] = []
    for _ in range(90):
        deep = [deep]
    made["taskRoles"]["worker"]["commands"] = ["<% $parameters.x %>" * 200]
    for wide in (900, 9):  # then those of lists within it are what there is to count
        made["parameters"] = {"x": [deep] * wide}
        with pytest.raises(Unsupported, match="all written out, an item of a list as 100"):
            command(made, "worker", made["taskRoles"]["worker"])
    made["parameters"] = {"x": [["a", "b"]] * 20}
    made["taskRoles"]["worker"]["commands"] = ["<% $parameters.x %>;" * 20]
    assert command(made, "worker", made["taskRoles"]["worker"])[-1].count("a,b,a,b") == 200


def test_references_that_are_never_closed_cost_no_more_than_their_length() -> None:
    with pytest.raises(Unsupported, match="expected every <% to be closed"):
        rendered("<% " * 100_000)
    assert rendered("<% x " * 100_000 + "%>").startswith("<% x <%")


def test_an_entry_far_behind_the_last_stays_a_reference() -> None:
    """Python reads no number of so many digits."""
    assert rendered(f"<% $data.uri[{'9' * 5_000}] %>") == f"<% $data.uri.{'9' * 5_000} %>"


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (["<% a"], "w.commands: expected every <% to be closed"),
        (["<% a %> <%# b %>x"], "w.commands: expected every section to be closed"),
        (["<%# b %>x<%/ c %>"], "w.commands: expected every section to be closed"),
        (["x<%/c%>"], "w.commands: expected every section to be closed"),
        (["<%# b %>", "<%^c%>x<%/ c %>", "<%/b%>", "%>"], ""),
        ("no list: the server says it", ""),
    ],
)
def test_what_mustache_cannot_read(commands: Any, said: str) -> None:
    """The server answers 500 to it, as if it were in trouble (``render`` raises)."""
    role = {"commands": commands, "resourcePerInstance": {"cpu": 1, "memoryMB": 1}}
    assert unreadable({"name": "train", "taskRoles": {"w": role}}) == (f"taskRoles.{said}" if said else "")
    assert unreadable({"taskRoles": [role]}) == unreadable({}) == ""


@pytest.mark.parametrize("said", ["echo $$", "echo $(PAI_JOB_NAME) $(date)", "a=$$(b)$$$", "echo $a ${b} $", "$$$$(("])
def test_kubernetes_expands_nothing_in_a_script(said: str) -> None:
    """As it was: ``$$``, the shell's own number, was one dollar there."""
    made = job("train")
    made["taskRoles"]["worker"]["commands"] = [said]
    (*_, script) = command(made, "worker", made["taskRoles"]["worker"])
    assert expanded(script) == OPTIONS + said


def expanded(text: str) -> str:
    """As Kubernetes has a container's command (third_party/forked/golang/expansion)."""

    def one(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else f"value of {found[1]}"

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)
