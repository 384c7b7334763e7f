"""Descriptions of jobs and clusters files that were good before something happened to them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.documents import load_all
from tests.fuzz import examples
from tests.fuzz.federation import CLUSTERS, clusters_file, job, jobs
from tests.fuzz.generate import encoded, jsons, spoiled


@examples(80)
@given(spoiled(jobs()) | spoiled(jobs(), jsons | st.just("<% $mcc.gpuNum %>") | st.just("<% $mcc.other %>")))
def test_a_spoiled_job_is_specialised_or_told_what_is_wrong(said: Any) -> None:
    """JSON is YAML."""
    job(encoded(said))


@examples(60)
@given(spoiled(load_all(CLUSTERS)))
def test_a_spoiled_clusters_file_is_one_or_told_what_is_wrong(said: Any) -> None:
    clusters_file(encoded(said))
