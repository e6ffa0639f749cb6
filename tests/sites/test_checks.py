"""What a site would refuse is told before submission, with the place and with what would fit."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.sites import find
from phalanx.sites.checks import ADVICE, ERROR, check, home_finding
from phalanx.sites.model import Site
from phalanx.sites.profile_search import shipped
from tests.examples import examples
from tests.sites.making import findings, resources, run, site

HERE = site()
FINE = {"timeout": "2h", **resources(cpu=4, memory="8Gi")}


def published(name: str) -> Site:
    found = find(name, Path("/nowhere"))
    assert found is not None
    return found


def test_what_fits_is_fine() -> None:
    assert check(run(**FINE), HERE) == []


def test_errors_come_first() -> None:
    found = check(run(timeout="10d", slurm={"account": "x"}, **resources(gpu=1)), published("narval"))
    severities = [one.severity for one in found]
    assert severities == sorted(severities, key=lambda severity: severity != ERROR)
    assert set(severities) == {ERROR, ADVICE}


class TestTime:
    def test_too_long_for_the_partition_says_which_segment_and_which_partition_would_fit(self) -> None:
        found = findings(run(**{**FINE, "timeout": "10h", "slurm": {"partition": "short"}}), HERE)
        fault = found["environment.timeout"]
        assert fault.message == "10h exceeds the limit of the partition `short`: 3h"
        assert fault.suggestion is not None
        assert "`environment.slurm.segment: 3h`: the run is split into 4 jobs" in fault.suggestion
        assert "a partition that allows it: `main`, `gpu`" in fault.suggestion
        assert "`old`" not in fault.suggestion, "it is down"

    def test_too_long_for_the_site(self) -> None:
        found = findings(run(**{**FINE, "timeout": "8d"}), site(max_time="7d"))
        assert "exceeds the limit of the partition `main`: 3d" in found["environment.timeout"].message
        assert (
            "exceeds the limit of here: 2d"
            in findings(run(**{**FINE, "timeout": "8d"}), site(max_time="2d"))["environment.timeout"].message
        )

    def test_a_segment_that_fits_makes_a_long_run_fit(self) -> None:
        assert findings(run(**{**FINE, "timeout": "30d", "slurm": {"segment": "3d"}}), HERE) == {}

    def test_a_segment_that_is_too_long_is_blamed_itself(self) -> None:
        found = findings(run(**{**FINE, "timeout": "30d", "slurm": {"segment": "4d"}}), HERE)
        assert set(found) == {"environment.slurm.segment"}
        suggestion = found["environment.slurm.segment"].suggestion
        assert suggestion is not None
        assert "split into 10 jobs" in suggestion

    def test_too_short(self) -> None:
        fault = findings(run(**{**FINE, "timeout": "1m"}), site(min_time="5m"))["environment.timeout"]
        assert fault.message == "1m is below the minimum of here: 5m"
        advice = findings(run(**{**FINE, "timeout": "10m"}), site(min_time="5m", wanted_time="1h"), ADVICE)
        assert "prefers jobs of at least 1h" in advice["environment.timeout"].message

    def test_a_partition_may_take_shorter_jobs_than_its_site(self) -> None:
        trillium = published("trillium")
        short = {"timeout": "5m", **resources(cpu=192)}
        assert "below the minimum of trillium: 15m" in findings(run(**short), trillium)["environment.timeout"].message
        assert "environment.timeout" not in findings(run(slurm={"partition": "debug"}, **short), trillium)

    def test_no_time_where_one_must_be_said(self) -> None:
        asked = run(**resources(cpu=1, memory="1Gi"))
        assert "requires a time limit" in findings(asked, site(time="required"))["environment.timeout"].message
        advice = findings(asked, HERE, ADVICE)["environment.timeout"]
        assert "requests the maximum, 3d" in advice.message

    def test_shorter_jobs_reach_more_nodes(self) -> None:
        narval = published("narval")
        asked: dict[str, Any] = {"slurm": {"account": "def-me"}, **resources(cpu=1, memory="1Gi")}
        advice = findings(run(timeout="5d", **asked), narval, ADVICE)["environment.timeout"]
        assert "a job of at most 3d can run on more nodes of narval" in advice.message
        assert "`environment.timeout: 3d`" in (advice.suggestion or "")
        assert findings(run(timeout="3h", **asked), narval, ADVICE) == {}

    def test_another_partition_with_the_same_nodes_may_start_first(self) -> None:
        advice = findings(run(**{**FINE, "slurm": {"partition": "main"}}), HERE, ADVICE)["environment.slurm.partition"]
        assert advice.message == "a job of 2h also fits into `short`"
        assert "`partition: short,main`" in (advice.suggestion or "")

    def test_what_sbatch_reads_elsewhere_counts(self) -> None:
        strict = site(time="required", account="required")
        asked = resources(cpu=1, memory="1Gi")
        assert set(findings(run(**asked), strict)) == {"environment.timeout", "environment.slurm.account"}
        assert findings(run(**asked), strict, SBATCH_TIMELIMIT="1:00:00", SBATCH_ACCOUNT="ai") == {}
        directives = {"time": "1-00", "account": "ai"}
        assert findings(run(slurm={"directives": directives}, **asked), strict) == {}
        assert (
            "4d exceeds"
            in findings(run(slurm={"directives": {"time": "4-00"}}, **asked), HERE)["environment.timeout"].message
        )


class TestNames:
    def test_no_account(self) -> None:
        fault = findings(run(**FINE), site(account="required", accounts=["ai", "hpc"]))["environment.slurm.account"]
        assert "yours are `ai`, `hpc`" in (fault.suggestion or "")

    def test_an_account_that_one_has_not(self) -> None:
        mine = site(accounts=["def-prof_cpu", "def-prof_gpu"])
        fault = findings(run(**FINE, slurm={"account": "def-porf"}), mine)["environment.slurm.account"]
        assert "did you mean `def-prof" in (fault.suggestion or "")
        assert findings(run(**FINE, slurm={"account": "def-prof"}), mine) == {}
        assert findings(run(**FINE, slurm={"account": "def-prof_gpu"}), mine) == {}

    def test_several_accounts_and_none_named_is_advice(self) -> None:
        assert "environment.slurm.account" in findings(run(**FINE), site(accounts=["a", "b"]), ADVICE)
        assert check(run(**FINE), site(accounts=["a"])) == []

    @pytest.mark.parametrize(
        ("rule", "slurm", "said"),
        [
            ("forbidden", {"partition": "main"}, "do not set one"),
            ("required", {}, "requires a partition"),
            ("optional", {"partition": "mian"}, "there is no partition `mian`"),
            ("optional", {"partition": "main,nowhere"}, "there is no partition `nowhere`"),
            ("optional", {"partition": "old"}, "accepts no jobs"),
            ("optional", {"partition": "gpu", "account": "biology"}, "does not allow the account `biology`"),
        ],
    )
    def test_partitions(self, rule: str, slurm: dict[str, str], said: str) -> None:
        fault = findings(run(**FINE, slurm=slurm), site(partition=rule))["environment.slurm.partition"]
        assert said in fault.message
        assert fault.suggestion

    def test_a_quality_of_service(self) -> None:
        assert "did you mean `limited`" in (
            findings(run(**FINE, slurm={"qos": "limitd"}), HERE)["environment.slurm.qos"].suggestion or ""
        )
        long = findings(run(**FINE, slurm={"qos": "limited"}), HERE)["environment.timeout"]
        assert "exceeds the limit of the quality of service `limited`: 20m" in long.message
        assert "or use a `qos` that allows it: `normal`" in (long.suggestion or "")
        assert "partition" not in (long.suggestion or "")
        wide = findings(run(timeout="10m", slurm={"qos": "limited"}, **resources(cpu=8, memory="1Gi")), HERE)
        assert "requests 8 cores, but `limited` allows a user at most 4" in wide["environment.slurm.qos"].message

    def test_a_feature_that_no_node_has(self) -> None:
        fault = findings(run(**FINE, slurm={"constraint": "[rack1*2&rakc1]"}), HERE)["environment.slurm.constraint"]
        assert fault.message == "no node of here has the feature `rakc1`"
        assert findings(run(**FINE, slurm={"constraint": "rack1|nvlink"}), HERE) == {}


class TestGpus:
    GPU: ClassVar = {"timeout": "2h", **resources(cpu=4, memory="8Gi", gpu=1)}
    AT: ClassVar = {"partition": "gpu", "account": "ai"}

    def test_a_type_that_is_there(self) -> None:
        assert check(run(**self.GPU, slurm={**self.AT, "gpu_type": "a100"}), HERE) == []

    def test_an_unknown_type(self) -> None:
        fault = findings(run(**self.GPU, slurm={**self.AT, "gpu_type": "a1000"}), HERE)["environment.slurm.gpu_type"]
        assert fault.suggestion == "did you mean `a100`?"
        other = findings(run(**self.GPU, slurm={**self.AT, "gpu_type": "mi300"}), HERE)["environment.slurm.gpu_type"]
        assert other.suggestion == "available: `a100`"

    def test_other_names_of_a_type_are_known(self) -> None:
        rorqual = published("rorqual")
        asked: dict[str, Any] = {**self.GPU, "slurm": {"account": "x", "gpu_type": "h100_80gb"}}
        assert findings(run(**asked), rorqual) == {}

    def test_a_type_must_be_named(self) -> None:
        fault = findings(run(**self.GPU, slurm=self.AT), site(gpu_type="required"))["environment.slurm.gpu_type"]
        assert "available are `a100`" in (fault.suggestion or "")
        asked: dict[str, Any] = {"slurm": {**self.AT, "directives": {"gres": "gpu:a100:1"}}}
        assert findings(run(**self.GPU, **asked), site(gpu_type="required")) == {}

    def test_no_gpus_at_all(self) -> None:
        plain = site("name: x\nnodes: [{count: 1, cpus: 8, memory: 32Gi}]")
        assert "has no known GPUs" in findings(run(**self.GPU), plain)["environment.resources.gpu"].message

    def test_more_than_a_node_has(self) -> None:
        fault = findings(run(timeout="1h", slurm=self.AT, **resources(gpu=8)), HERE)["environment.resources.gpu"]
        assert fault.message == "master-0: 8 GPUs, but a node of here has at most 4"

    def test_gpus_are_in_another_partition(self) -> None:
        fault = findings(run(timeout="1h", **resources(gpu=1)), HERE)["environment.resources.gpu"]
        assert "partitions with such nodes: `gpu`" in (fault.suggestion or "")

    def test_one_slice_a_job(self) -> None:
        narval = published("narval")
        asked: dict[str, Any] = {"timeout": "1h", "slurm": {"account": "x", "gpu_type": "a100_1g.5gb"}}
        one = resources(cpu=1, memory="10Gi", gpu=1)
        assert findings(run(**asked, **one), narval) == {}
        fault = findings(run(1, worker=one, **asked, **one), narval)["environment.slurm.gpu_type"]
        assert "requests 2: narval allows one per job" in fault.message
        assert fault.suggestion == "request whole GPUs: `gpu_type: a100`"

    def test_one_gpu_or_whole_nodes(self) -> None:
        trillium = published("trillium")
        asked: dict[str, Any] = {"timeout": "1h", "slurm": {"gpu_type": "h100"}}
        for gpus in (1, 4):
            assert findings(run(**asked, **resources(cpu=24, gpu=gpus)), trillium) == {}
        fault = findings(run(**asked, **resources(cpu=24, gpu=2)), trillium)["environment.resources.gpu"]
        assert fault.message == "master-0: 2 GPUs, and trillium allows 1 or a multiple of 4"
        assert fault.suggestion == "request 4 in total"

    def test_whole_nodes_only(self) -> None:
        tamia = published("tamia")
        asked: dict[str, Any] = {"timeout": "1h", "slurm": {"account": "x", "gpu_type": "h200"}}
        assert findings(run(**asked, **resources(cpu=64, gpu=8)), tamia) == {}
        fault = findings(run(**asked, **resources(cpu=48, gpu=4)), tamia)["environment.resources.gpu"]
        assert "tamia allocates whole nodes of 8" in fault.message

    def test_more_cores_or_memory_than_go_with_a_gpu(self) -> None:
        asked: dict[str, Any] = {
            "timeout": "2h",
            "slurm": {**self.AT, "gpu_type": "a100"},
            **resources(cpu=24, memory="200Gi", gpu=1),
        }
        advice = findings(run(**asked), HERE, ADVICE)
        assert "24 cores per GPU, but here allots 12" in advice["environment.resources.cpu"].message
        assert "request at most 120Gi" in (advice["environment.resources.memory"].suggestion or "")
        assert findings(run(**asked), HERE) == {}


class TestNodes:
    def test_a_replica_that_no_node_holds(self) -> None:
        found = findings(run(timeout="1h", **resources(cpu=16, memory="64Gi")), HERE)
        assert found["environment.resources.cpu"].message == "master-0: 16 cores, but a node of here has at most 8"
        assert "at most 32Gi" in found["environment.resources.memory"].message
        assert "`gpu`" in (found["environment.resources.cpu"].suggestion or "")

    def test_no_node_has_all_of_it(self) -> None:
        mixed = site("name: x\nnodes: [{count: 1, cpus: 64, memory: 8Gi}, {count: 1, cpus: 4, memory: 64Gi}]")
        fault = findings(run(timeout="1h", **resources(cpu=32, memory="32Gi")), mixed)["environment.resources"]
        assert "no node of x has all the requested resources" in fault.message
        assert "nodes of 64 cores, 8Gi; nodes of 4 cores, 64Gi" in (fault.suggestion or "")

    def test_workers_are_blamed_in_their_own_place(self) -> None:
        found = findings(run(3, worker=resources(cpu=9), **FINE), HERE)
        assert set(found) == {"environment.replicas.default_worker.resources.cpu"}
        assert found.popitem()[1].message.startswith("worker-0 and 2 more: 9 cores")

    def test_components_never_share_a_node(self) -> None:
        """A master, two kinds of workers: more components than nodes waits for ever, and says nothing."""
        two = site("name: x\nnodes: [{count: 2, cpus: 8, memory: 32Gi}]")
        three = run(1, ps=1, worker=resources(cpu=2, memory="1Gi"), timeout="1h", **resources(cpu=1, memory="1Gi"))
        fault = findings(three, two)["environment.slurm.layout"]
        assert fault.message == (
            "the run needs 3 nodes in 3 components, which never share a node, but x has 2: it would wait forever"
        )
        assert "layout: homogeneous" in (fault.suggestion or "")
        same = run(1, worker=resources(cpu=1, memory="1Gi"), timeout="1h", **resources(cpu=1, memory="1Gi"))
        assert findings(same, two) == {}

    def test_a_site_without_heterogeneous_jobs(self) -> None:
        mixed = run(1, worker=resources(cpu=2), **FINE)
        assert (
            "does not allow heterogeneous jobs"
            in findings(mixed, site(heterogeneous_jobs=False))["environment.slurm.layout"].message
        )
        assert findings(mixed, HERE) == {}

    def test_more_nodes_than_there_are(self) -> None:
        fault = findings(
            run(8, worker=resources(cpu=8, memory="8Gi"), timeout="1h", **resources(cpu=8, memory="8Gi")), HERE
        )
        (found,) = fault.values()
        assert "it needs 9 nodes, but here has 4 suitable" in found.message

    def test_more_nodes_than_the_partition_gives(self) -> None:
        asked = resources(cpu=12, memory="8Gi", gpu=4)
        slurm = {"partition": "gpu", "account": "ai", "gpu_type": "a100"}
        fault = findings(run(2, worker=asked, timeout="1h", slurm=slurm, **asked), HERE)["environment.slurm.partition"]
        assert fault.message == "the run needs 3 nodes, but the partition allows at most 2 per job"

    def test_more_replicas_on_a_node_than_it_holds(self) -> None:
        same = resources(cpu=4, memory="1Gi")
        fault = findings(run(3, worker=same, timeout="1h", slurm={"replicas_per_node": 4}, **same), HERE)
        assert "4 per node, but a node of here holds 2" in fault["environment.slurm.replicas_per_node"].message

    def test_whole_nodes_that_are_hardly_used(self) -> None:
        advice = findings(run(timeout="2h", **resources(cpu=4)), published("trillium"), ADVICE)
        assert "4 of the 192 cores, but trillium allocates whole nodes" in advice["environment.resources.cpu"].message


class TestTheRest:
    def test_no_memory_where_little_is_given(self) -> None:
        advice = findings(run(timeout="2h", **resources(cpu=1)), site(default_memory="256Mi"), ADVICE)
        assert "the default of here is 256Mi per core" in advice["environment.resources.memory"].message
        asked: dict[str, Any] = {"slurm": {"directives": {"mem-per-cpu": "4G"}}, **resources(cpu=1)}
        assert findings(run(timeout="2h", **asked), site(default_memory="256Mi"), ADVICE) == {}

    def test_packages_on_nodes_without_internet(self) -> None:
        narval = published("narval")
        asked: dict[str, Any] = {"timeout": "1h", "slurm": {"account": "x"}, **resources(cpu=1, memory="1Gi")}
        found = findings(run(**asked, python={"requirements": ["torch"]}), narval)
        assert "have no internet access" in found["environment.python.requirements"].message
        for python in ({"no_index": True}, {"wheelhouse": ["/w"]}, {"build_on": "login"}):
            assert findings(run(**asked, python={"requirements": ["torch"], **python}), narval) == {}
        assert findings(run(**asked, python={"requirements": ["torch"]}), published("fir")) == {}

    def test_a_home_that_nodes_cannot_write_to(self) -> None:
        trillium, environ = published("trillium"), {"SCRATCH": "/scratch/me"}
        assert home_finding(trillium, PurePath("/scratch/me/phalanx"), environ) is None
        found = home_finding(trillium, PurePath("/home/me/.phalanx"), environ)
        assert found is not None
        assert "write only below $SCRATCH" in found.message
        assert home_finding(HERE, PurePath("/home/me"), {}) is None
        assert home_finding(trillium, PurePath("/home/me"), {}) is not None


AMOUNTS = st.none() | st.integers(0, 300)
SITES = [HERE, *(found.read() for found in shipped().values()), Site("bare")]


@examples(150)
@given(
    at=st.sampled_from(SITES),
    workers=st.integers(0, 40),
    cpu=AMOUNTS,
    gpu=st.none() | st.integers(0, 12),
    worker_gpu=st.none() | st.integers(0, 12),
    memory=st.none() | st.integers(1, 4000).map(lambda size: f"{size}Gi"),
    timeout=st.none() | st.integers(1, 10**7),
    slurm=st.fixed_dictionaries(
        {},
        optional={
            "partition": st.sampled_from(["main", "gpu", "nowhere", "short,main"]),
            "gpu_type": st.sampled_from(["a100", "h100", "h100_1g.10gb", "x"]),
            "layout": st.just("homogeneous"),
            "segment": st.integers(120, 10**6),
            "replicas_per_node": st.integers(1, 64),
            "constraint": st.sampled_from(["rack1", "[a&b*3]", "(x|y)"]),
            "qos": st.sampled_from(["limited", "other"]),
        },
    ),
)
def test_every_plan_gets_an_answer(
    *,
    at: Site,
    workers: int,
    cpu: int | None,
    gpu: int | None,
    worker_gpu: int | None,
    memory: str | None,
    timeout: int | None,
    slurm: dict[str, object],
) -> None:
    time = {} if timeout is None else {"timeout": timeout}
    made = run(workers, worker=resources(cpu=cpu, gpu=worker_gpu), slurm=slurm, **time, **resources(cpu, memory, gpu))
    for found in check(made, at):
        assert found.severity in (ERROR, ADVICE)
        assert found.path.startswith("environment")
        assert found.message
        assert "None" not in found.message
        assert "None" not in (found.suggestion or "")
    assert check(made, Site("bare")) == []
