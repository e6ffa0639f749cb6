"""Linux limits the size of one variable: a run whose addresses do not fit in TF_CONFIG is refused."""

from __future__ import annotations

import subprocess

import pytest

from phalanx import backends
from phalanx.errors import CallError
from phalanx.plan.variable_limit import LARGEST, AddressLengths, too_long
from tests.plan.samples import distributed


def test_the_limit_is_that_of_this_kernel() -> None:
    fits = "x" * (LARGEST - len("A=") - 1)
    assert subprocess.run(["/bin/true"], env={"A": fits}, check=False).returncode == 0
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["/bin/true"], env={"A": fits + "x"}, check=False)


@pytest.mark.parametrize("backend", ["local", "slurm", "kubernetes", "kubeflow"])
def test_a_job_whose_replicas_could_not_start_is_refused(backend: str) -> None:
    made = distributed("tensorflow", n_workers=14_000)
    with pytest.raises(CallError, match=r"TF_CONFIG lists the addresses of all replicas|do not fit into a Kubernetes"):
        backends.find(backend).render(made)
    assert any("no replica could start" in note.message for note in made.notes)


def test_as_many_replicas_as_fit_are_planned_without_a_word() -> None:
    made = distributed("tensorflow", n_workers=5_000)
    assert too_long(made, AddressLengths(9, 5)) is None
    assert not any("could start" in note.message for note in made.notes)
    assert sum(map(len, backends.find("local").render(made).files.values())) < 20 << 20


def test_other_frameworks_have_no_such_limit() -> None:
    assert too_long(distributed("pytorch", n_workers=14_000)) is None
