"""Seed 001, "Describing a multi-cluster job": what is read, and what is refused with which words."""

from collections.abc import Callable
from typing import Any

import pytest

from services.federator.mcc import LONGEST_TOLD, PLUGINS, InvalidJob, _Problems, load, parse, scalars
from tests.federator.jobs import EXAMPLE, document, plugin

PLUGIN = "extra.com.microsoft.pai.runtimeplugin[1].parameters"
PARAMS = f"{PLUGIN}.params"


def problems(changed: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(InvalidJob) as refused:
        parse(changed)
    return refused.value.problems


def test_the_texts_example_is_read() -> None:
    job = load(EXAMPLE)
    assert job.name == "mc-job-name"
    assert [(c.alias, c.uri, c.user, c.gpu_type, c.priority_milli) for c in job.clusters] == [
        ("a1", "pai-a.example", "ann", "V100", 80_000),
        ("b2", "pai-b.example", "bob", "K80", 20_000),
    ]
    assert job.choice("b2") == job.clusters[1]
    assert (job.guard_ms, job.scale_ms) == (600_000, 60_000)
    assert job.parameters["storageConfigs"]["a1"] == ["storage-1", "storage-2"]
    assert job.tokens() == ["token-a1", "token-b2"]
    assert [problem.partition(":")[0] for problem in job.token_problems()] == ["secrets.token-a1", "secrets.token-b2"]


def test_the_servers_extras_are_read_like_the_texts_extra() -> None:
    changed = document()
    changed["extras"] = changed.pop("extra")
    assert parse(changed).clusters == load(EXAMPLE).clusters


def test_both_spellings_at_once_contradict_each_other() -> None:
    changed = document()
    changed["extras"] = {}
    assert problems(changed) == ("expected 'extra' or 'extras', found both",)


@pytest.mark.parametrize("version", ["2", 2, "super-3", None])
def test_prefixed_with_super_means_this_is_a_multi_cluster_job(version: object) -> None:
    assert any(
        line.startswith("protocolVersion: expected 'super-2'")
        for line in problems({**document(), "protocolVersion": version})
    )


def test_a_missing_value_names_parameter_and_alias() -> None:
    changed = document()
    del plugin(changed)["params"]["gpuNum"]["b2"]
    assert problems(changed) == (f"{PARAMS}.gpuNum: missing: parameter gpuNum has no value for b2",)


def test_a_superfluous_value_names_parameter_and_alias() -> None:
    changed = document()
    plugin(changed)["params"]["gpuNum"]["c3"] = 8
    assert problems(changed) == (
        f"{PARAMS}.gpuNum: superfluous: parameter gpuNum has a value for c3, which is no cluster",
    )


def test_a_parameter_that_is_used_and_nowhere_given_is_missing_for_every_alias() -> None:
    changed = document()
    del plugin(changed)["params"]["storageConfigs"]
    (line,) = problems(changed)
    assert line.endswith("storageConfigNames: missing: parameter storageConfigs has no value for a1, b2")
    del plugin(changed)["params"]["gpuNum"]
    assert "taskRoles.main.commands[0]: missing: parameter gpuNum has no value for a1, b2" in problems(changed)


def test_a_parameter_that_nothing_uses_is_superfluous() -> None:
    changed = document()
    plugin(changed)["params"]["unused"] = {"a1": 1, "b2": 2}
    (line,) = problems(changed)
    assert line.endswith("params.unused: superfluous: no <% $mcc.unused %> uses parameter unused")


def test_a_list_cannot_stand_within_a_text() -> None:
    changed = document()
    changed["taskRoles"]["main"]["commands"] = ["use <% $mcc.storageConfigs %>"]
    assert problems(changed) == (
        "taskRoles.main.commands[0]: parameter storageConfigs stands within a text, and its value for a1 is a list",
        "taskRoles.main.commands[0]: parameter storageConfigs stands within a text, and its value for b2 is a list",
    )


def test_priority_is_a_number_in_the_range_of_0_and_100() -> None:
    for priority, milli in ((0, 0), (100, 100_000), (33.3, 33_300), (0.001, 1)):
        changed = document()
        plugin(changed)["clusters"]["a1"]["priority"] = priority
        assert parse(changed).clusters[0].priority_milli == milli
    for priority in (-1, 100.5, 101, "80", True, None, 0.0001, float("nan"), float("inf")):
        changed = document()
        plugin(changed)["clusters"]["a1"]["priority"] = priority
        (line,) = problems(changed)
        assert "clusters.a1.priority: expected a number from 0 to 100" in line


def test_without_priorities_all_clusters_are_equal() -> None:
    changed = document()
    for entry in plugin(changed)["clusters"].values():
        del entry["priority"], entry["gpuType"]
    assert {(choice.priority_milli, choice.gpu_type) for choice in parse(changed).clusters} == {(0, "")}


def test_guard_time_and_time_scale_are_minutes() -> None:
    changed = document()
    plugin(changed).update(guardTimeRunning=0.5, timeScale=0)
    job = parse(changed)
    assert (job.guard_ms, job.scale_ms) == (30_000, 0)
    for name in ("guardTimeRunning", "timeScale"):
        assert name in problems(_with(name, "10m"))[0]
        assert name in problems(_with(name, -1))[0]


def _with(name: str, value: object) -> dict[str, Any]:
    changed = document()
    plugin(changed)[name] = value
    return changed


def test_guard_time_and_time_scale_of_the_example_hold_where_none_are_given() -> None:
    changed = document()
    del plugin(changed)["guardTimeRunning"], plugin(changed)["timeScale"]
    job = parse(changed)
    assert (job.guard_ms, job.scale_ms) == (600_000, 60_000)


def test_the_alias_is_the_uri_by_default() -> None:
    changed = document()
    plugin(changed)["clusters"] = [{"uri": "http://pai.one/x", "user": "ann"}, {"alias": "b2", "uri": "b", "user": "b"}]
    plugin(changed)["params"] = {
        name: {"http://pai.one/x": values["a1"], "b2": values["b2"]}
        for name, values in plugin(changed)["params"].items()
    }
    job = parse(changed)
    assert [(choice.alias, choice.slug) for choice in job.clusters] == [
        ("http://pai.one/x", "http-pai-one-x"),
        ("b2", "b2"),
    ]


def test_aliases_that_are_one_in_a_jobs_name_are_refused() -> None:
    changed = document()
    clusters = plugin(changed)["clusters"]
    clusters["a.1"], clusters["a/1"] = clusters.pop("a1"), clusters.pop("b2")
    assert any("'a.1' and 'a/1' are 'a-1' in a job's name" in line for line in problems(changed))


def test_everything_that_is_wrong_is_told_at_once() -> None:
    changed = document()
    changed["name"] = "no spaces please"
    plugin(changed)["clusters"]["a1"]["prio"] = 3
    del plugin(changed)["clusters"]["b2"]["user"]
    plugin(changed)["params"]["gpuNum"]["c3"] = 8
    found = problems(changed)
    assert [line.split(":")[0].rpartition("]")[2] for line in found] == [
        "name",
        ".parameters.clusters.a1.prio",
        ".parameters.clusters.b2.user",
        ".parameters.params.gpuNum",
    ]


OF_PLUGIN = ("extra", PLUGINS, 1, "parameters")
NO_CLUSTER, NO_TEXT = "expected at least one cluster, found", "expected a string of at most 255 characters, found"
NO_MAPPING, NO_MINUTES = (
    "expected a mapping, found",
    "expected a number from 0 to 525600, at most three decimals (minutes)",
)
OWN = "has a placeholder of its own"


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("name",), None, "name: expected letters, digits, '-' and '_', found nothing"),
        (("name",), "!" * 300, f"name: expected letters, digits, '-' and '_', found '{'!' * 59}"),
        (("secrets",), "token-a1: x", f"secrets: {NO_MAPPING} a text"),
        (("extra",), [], f"extra: {NO_MAPPING} a list"),
        (("extra", PLUGINS), None, f"extra.{PLUGINS}: expected a list of plugins, found nothing"),
        (("extra", PLUGINS), [3], f"extra.{PLUGINS}: expected one plugin super_scheduler, found 0"),
        (OF_PLUGIN, True, f"{PLUGIN}: {NO_MAPPING} a boolean"),
        ((*OF_PLUGIN, "clusters"), None, f"{PLUGIN}.clusters: {NO_CLUSTER} nothing"),
        ((*OF_PLUGIN, "clusters"), {}, f"{PLUGIN}.clusters: {NO_CLUSTER} a mapping"),
        ((*OF_PLUGIN, "clusters"), [], f"{PLUGIN}.clusters: {NO_CLUSTER} a list"),
        ((*OF_PLUGIN, "clusters"), 7, f"{PLUGIN}.clusters: {NO_CLUSTER} 7"),
        ((*OF_PLUGIN, "clusters"), [{}] * 101, f"{PLUGIN}.clusters: expected at most 100 clusters, found 101"),
        ((*OF_PLUGIN, "clusters"), [3], f"{PLUGIN}.clusters[0]: {NO_MAPPING} a number"),
        ((*OF_PLUGIN, "clusters"), [{"alias": ""}], f"{PLUGIN}.clusters[0].alias: {NO_TEXT} ''"),
        (
            (*OF_PLUGIN, "clusters", "a1", "alias"),
            "a",
            f"{PLUGIN}.clusters.a1.alias: not known; expected uri, user, gpuType, priority",
        ),
        ((*OF_PLUGIN, "clusters", "a1", "user"), ["token"], f"{PLUGIN}.clusters.a1.user: {NO_TEXT} a list"),
        ((*OF_PLUGIN, "clusters", "a1", "user"), 7, f"{PLUGIN}.clusters.a1.user: {NO_TEXT} 7"),
        ((*OF_PLUGIN, "clusters", "a1", "gpuType"), None, f"{PLUGIN}.clusters.a1.gpuType: {NO_TEXT} nothing"),
        (
            (*OF_PLUGIN, "clusters", "!"),
            {"uri": "c", "user": "c"},
            f"{PLUGIN}.clusters: '!' has no letter or digit for a job's name",
        ),
        ((*OF_PLUGIN, "guardTimeRunning"), 525_601, f"{PLUGIN}.guardTimeRunning: {NO_MINUTES}, found 525601"),
        ((*OF_PLUGIN, "timeScale"), {}, f"{PLUGIN}.timeScale: {NO_MINUTES}, found a mapping"),
        ((*OF_PLUGIN, "params"), [], f"{PARAMS}: {NO_MAPPING} a list"),
        ((*OF_PLUGIN, "params", "gpuNum"), 3, f"{PARAMS}.gpuNum: expected a value for each cluster, found a number"),
        (
            (*OF_PLUGIN, "params", "gpu num"),
            {"a1": 1, "b2": 1},
            f"{PARAMS}.gpu num: expected letters, digits, '-' and '_' as a parameter's name",
        ),
        (
            (*OF_PLUGIN, "params", "gpuNum", "a1"),
            None,
            "taskRoles.main.commands[0]: parameter gpuNum stands within a text, and its value for a1 is nothing",
        ),
        (
            (*OF_PLUGIN, "params", "storageConfigs", "b2"),
            [{"plugin": "super_scheduler", "name": "<% $mcc.gpuNum %>"}],
            f"parameter storageConfigs: its value for b2 {OWN}",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(place: tuple[str | int, ...], value: object, told: str) -> None:
    changed = document()
    within: Any = changed
    for step in place[:-1]:
        within = within[step]
    within[place[-1]] = value
    found = problems(changed)
    assert told in found
    assert len(found) == 1 or place[-1] in ("clusters", "!", "params", "gpuNum"), "what follows from it is told, too"


def test_without_an_extra_there_is_no_job() -> None:
    changed = document()
    del changed["extra"]
    assert problems(changed) == ("expected 'extra' or 'extras'",)


def test_parameters_may_be_left_out_as_much_as_be_empty() -> None:
    changed = document()
    changed["taskRoles"]["main"] = {"dockerImage": "image"}
    del changed["extra"][PLUGINS][0]
    for nothing in ({}, None):
        plugin(changed)["params"] = nothing
        assert parse(changed).parameters == {}
    del plugin(changed)["params"]
    assert parse(changed).parameters == {}
    plugin(changed)["clusters"] = {f"c{number}": {"uri": "u", "user": "u"} for number in range(100)}
    assert len(parse(changed).clusters) == 100, "as many as there may be"


def test_a_jobs_name_with_an_alias_and_a_number_has_255_characters_at_most() -> None:
    parse({**document(), "name": "n" * 248})
    name = f"name: {'n' * 20}…-"
    assert problems({**document(), "name": "n" * 249}) == (
        f"{name}a1… is longer than a job's name may be",
        f"{name}b2… is longer than a job's name may be",
    )
    changed = document()
    plugin(changed)["clusters"]["c" * 248] = {"uri": "c", "user": "c"}
    assert f"name: mc-job-name…-{'c' * 20}… is longer than a job's name may be" in problems(changed)


def test_a_value_may_be_the_same_as_its_key() -> None:
    """As it was: any such text was taken for a key with a placeholder."""
    assert parse({**document(), "parameters": {"main": "main"}}).document["parameters"] == {"main": "main"}


def test_what_looks_like_the_plugin_elsewhere_is_the_jobs() -> None:
    """As it was: nobody looked for placeholders there, and whoever filled them in found no value."""
    changed = document()
    role = changed["taskRoles"]["main"]
    role["also"] = {"plugin": "super_scheduler", "gpus": "<% $mcc.gpuNum %>"}
    parse(changed)
    role["also"]["seeds"] = "<% $mcc.seeds %>"
    assert problems(changed) == ("taskRoles.main.also.seeds: missing: parameter seeds has no value for a1, b2",)
    del role["also"]["seeds"]
    changed["extra"][PLUGINS][0]["parameters"] = [{"plugin": "super_scheduler", "<% $mcc.gpuNum %>": 1}]
    assert any("cannot stand in a key" in line for line in problems(changed))


@pytest.mark.parametrize("spelled", ["extra", "extras"])
def test_placeholders_in_the_plugin_and_in_tokens_go_to_no_cluster_and_need_no_value(spelled: str) -> None:
    changed = document()
    extra = changed[spelled] = changed.pop("extra")
    plugin(changed)["clusters"]["a1"]["user"] = changed["secrets"]["token-a1"] = "<% $mcc.nobody %>"
    parse(changed)
    plugin(changed)["params"]["nobody"] = {"a1": 1, "b2": 1}
    assert problems(changed) == (
        f"{spelled}{PARAMS.removeprefix('extra')}.nobody: superfluous: no <% $mcc.nobody %> uses parameter nobody",
    )
    del plugin(changed)["params"]["nobody"]
    extra[PLUGINS].append({"plugin": "ssh", "user": "<% $mcc.nobody %>"})
    assert problems(changed) == (f"{spelled}.{PLUGINS}[2].user: missing: parameter nobody has no value for a1, b2",)


def test_only_secrets_of_that_name_are_tokens() -> None:
    changed = document()
    changed["secrets"]["registry"] = "kept"
    assert parse(changed).tokens() == ["token-a1", "token-b2"]


@pytest.mark.parametrize(
    ("field", "most"), [("user", 255), ("gpuType", 255), ("uri", 2_048)], ids=["user", "gpuType", "uri"]
)
def test_what_stands_in_every_commit_about_a_job_is_short(field: str, most: int) -> None:
    """As it was: a commit about jobs with long aliases was too large for NATS, and no federator could go on."""
    changed = document()
    plugin(changed)["clusters"]["a1"][field] = "x" * most
    parse(changed)
    plugin(changed)["clusters"]["a1"][field] = "x" * (most + 1)
    (problem,) = problems(changed)
    assert problem.endswith(
        f"clusters.a1.{field}: expected a string of at most {most} characters, found one of {most + 1}"
    )


def test_an_alias_is_short_whatever_of_it_stands_in_a_jobs_name() -> None:
    changed = document()
    of = plugin(changed)
    alias = "a" + "!" * 255 + "b"
    of["clusters"][alias] = of["clusters"].pop("a1")
    for values in of["params"].values():
        values[alias] = values.pop("a1")
    told = problems(changed)
    assert any(problem.endswith("expected a string of at most 255 characters, found one of 257") for problem in told)


def test_a_little_text_does_not_become_a_lot() -> None:
    """As it was: 58 kB held up the federator until its lease was lost, and then the next one."""
    changed = document()
    plugin(changed)["params"]["gpuNum"] = dict.fromkeys(("a1", "b2"), "x" * 1_000)
    changed["jobs"] = ["<% $mcc.gpuNum %>"] * 500
    parse(changed)
    changed["jobs"] = ["<% $mcc.gpuNum %>"] * 600
    assert problems(changed) == ("expected less than 524288 characters, anchors and parameters written out",)
    changed["jobs"] = []
    for counts in ([7] * 200_000, [[]] * 600_000, dict.fromkeys(map(str, range(100_000))), {"x" * 600_000: []}):
        assert problems({**changed, "more": counts}) == (
            "expected less than 524288 characters, anchors and parameters written out",
        )
    row = ["x" * 1_000] * 30
    assert problems({**document(), "anchored": [row] * 30}) == (
        "expected less than 524288 characters, anchors and parameters written out",
    )


@pytest.mark.parametrize("within", [lambda part: [part], lambda part: {"": part}], ids=["lists", "mappings"])
def test_a_line_counts_with_its_indentation(within: Callable[[Any], Any]) -> None:
    """3,000 lines of two spaces for each of 100 levels."""
    for items in (["x"] * 3_000, {str(number): "x" for number in range(3_000)}):
        deep: Any = items
        for _ in range(100):
            deep = within(deep)
        parse({**document(), "flat": items})
        assert problems({**document(), "deep": deep}) == (
            "expected less than 524288 characters, anchors and parameters written out",
        )


def test_what_anchors_repeat_is_looked_at_once() -> None:
    """As it was: of a job of some KB the federator looked at a million texts, each as long as it liked."""
    text = "x<% $mcc.gpuNum %>"
    assert [*scalars({"a": [[text] * 100] * 100, "b": text, "c": "y"})] == [(("a", 0, 0), text), (("c",), "y")]
    aliases = [f"c{number}" for number in range(100)]
    changed = {**document(), "more": [[text] * 100] * 100}
    of = plugin(changed)
    of["clusters"] = {alias: {"uri": "https://pai.example", "user": "alice"} for alias in aliases}
    of["params"] = {"gpuNum": dict.fromkeys(aliases), "storageConfigs": dict.fromkeys(aliases, 1)}
    told = problems(changed)
    assert told[1] == "more[0][0]: parameter gpuNum stands within a text, and its value for c0 is nothing"
    assert told[-1] == "and 100 more"


def test_not_more_problems_are_looked_for_than_there_is_memory() -> None:
    """As they were: half a million of them, of which a hundred are told."""
    changed = document()
    plugin(changed)["params"] |= {f"p{number}": {} for number in range(100_000)}
    assert problems(changed)[-1] == "and 9900 more"


def test_parts_count_as_they_are_written() -> None:
    """As it was: of 10 KB came YAML of 2.5 MB, which took seconds to write for each cluster, and was refused."""
    assert len(problems({**document(), "more": [[[]] * 1_000] * 200})) == 1


@pytest.mark.parametrize("spelled", ["extra", "extras"])
def test_how_much_it_becomes_is_told_by_what_a_cluster_gets(spelled: str) -> None:
    """The longest value of a parameter counts, and the plugin itself does not."""
    changed = document()
    extra = changed[spelled] = changed.pop("extra")
    of = plugin(changed)
    of["params"]["storageConfigs"] = {"a1": ["x"] * 50_000 + ["x" * 300_000], "b2": "x" * 300_000}
    parse(changed)
    short, long = "x", ["x" * 600_000]
    for values in ({"a1": short, "b2": long}, {"a1": long, "b2": short}):
        of["params"]["storageConfigs"] = values
        assert len(problems(changed)) == 1
    of["params"]["storageConfigs"] = {"a1": short, "b2": short}
    parse(changed)
    extra["more"] = long
    assert len(problems(changed)) == 1
    extra["more"] = extra[PLUGINS][0]["more"] = short
    parse(changed)
    extra[PLUGINS][0]["more"] = long
    assert len(problems(changed)) == 1


def test_of_very_many_problems_some_are_told() -> None:
    hundred = [str(number) for number in range(100)]
    assert InvalidJob(hundred).problems == tuple(hundred)
    assert InvalidJob([*hundred, "x"]).problems == (*hundred, "and 1 more")
    found = _Problems()
    found.append("x" * 200_000)
    assert len(found[0]) == LONGEST_TOLD, "ten thousand of them took gigabytes"
    assert str(InvalidJob(["a", "b"])) == "a; b"
    changed = document()
    plugin(changed)["params"] |= {f"p{number}": {} for number in range(1_000)}
    told = problems(changed)
    assert (len(told), told[-1]) == (101, "and 2900 more")


def test_of_a_long_problem_both_ends_are_told() -> None:
    changed = document()
    plugin(changed)["9" * 5_000] = None
    (told,) = problems(changed)
    assert len(told) == LONGEST_TOLD
    assert InvalidJob(["x" * LONGEST_TOLD]).problems == ("x" * LONGEST_TOLD,)
    assert told.startswith("extra.com.microsoft.pai.runtimeplugin[1].parameters.999")
    assert told.endswith("99: not known; expected clusters, guardTimeRunning, timeScale, params")


@pytest.mark.parametrize("text", ["<% $mcc.a.b %>", "<% $mcc %>", "<% $mcc.gpu num %>"])
def test_a_placeholder_that_is_none_is_refused(text: str) -> None:
    changed = document()
    changed["taskRoles"]["main"]["commands"].append(text)
    assert problems(changed) == (f"taskRoles.main.commands[1]: expected <% $mcc.NAME %>, found {text!r}",)


def test_a_placeholder_in_a_key_is_refused() -> None:
    changed = document()
    changed["taskRoles"]["<% $mcc.gpuNum %>"] = changed["taskRoles"].pop("main")
    assert "taskRoles.<% $mcc.gpuNum %>: a placeholder cannot stand in a key" in problems(changed)


@pytest.mark.parametrize("plugins", [None, [], {}, [{"plugin": "super_scheduler"}], [{"plugin": "ssh"}], "x", [3]])
def test_without_one_super_scheduler_there_is_no_job(plugins: object) -> None:
    changed = document()
    changed["extra"]["com.microsoft.pai.runtimeplugin"] = plugins
    assert problems(changed)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "a: 1\n---\nb: 2", "- x", "3"])
def test_what_is_no_job_at_all_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob):
        load(text)


def test_a_problem_never_says_a_token() -> None:
    changed = document()
    changed["secrets"] = "token-a1: aaa-secret"
    assert not any("aaa-secret" in line for line in problems(changed))
