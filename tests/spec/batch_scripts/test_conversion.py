"""Scripts for sbatch as polyaxonfiles: what is understood becomes settings, the rest stays a script."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.spec import Spec, load
from phalanx.spec.batch_scripts import converted_script, document_of_command, document_of_script, read_script
from phalanx.spec.yaml_writer import to_yaml


def _spec(document: dict[str, Any]) -> Spec:
    return load([("job.sh", to_yaml(document).encode())])


def _script(body: str, *directives: str) -> str:
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in directives), body, ""])


def test_directives_are_read_in_both_forms_up_to_the_first_command() -> None:
    text = "#!/bin/bash\n#SBATCH -N2 -n 8\n# words\n\n#SBATCH --time=5 --exclusive # more\necho\n#SBATCH --qos=late\n"
    assert read_script(text).directives == {"nodes": "2", "ntasks": "8", "time": "5", "exclusive": ""}


@pytest.mark.parametrize(
    ("line", "words"), [("nodes=2", "no option of sbatch"), ("hetjob", "heterogeneous"), ("--comment='a", "quote")]
)
def test_a_line_that_sbatch_would_refuse_is_named(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"line 2: .*{words}"):
        read_script(_script("ls", line))


def test_a_value_with_spaces_is_left_out_with_a_note() -> None:
    script = read_script(_script("ls", '--mail-user="a b"', '-J "my job"'))
    assert script.directives == {"job-name": "my job"}
    assert script.notes == ("line 2: `--mail-user` is left out: its value has spaces, quotes or `$`",)


def test_torchrun_on_several_nodes_becomes_replicas_of_pytorch() -> None:
    lines = ("-J ddp", "--nodes=2 --ntasks-per-node=1", "-c 8", "--gres=gpu:a100:4", "--mem=64G", "-t 1-02:30", "-A me")
    body = """\
module load python/3.11 cuda/12
source ~/venv/bin/activate
export OMP_NUM_THREADS=8
export MASTER_ADDR=$(hostname)
srun torchrun --nnodes=2 --nproc-per-node=4 --rdzv_endpoint=$MASTER_ADDR:29500 \\
  train.py --lr 0.1"""
    document, notes = converted_script(_script(body, *lines), "job")
    spec = _spec(document)
    assert (spec.name, spec.framework, spec.command) == (
        "ddp",
        "pytorch",
        "torchrun --nproc-per-node=4 train.py --lr 0.1",
    )
    environment = spec.environment
    assert environment.replicas is not None
    assert environment.replicas.n_workers == 1
    assert environment.replicas.default_worker == environment.settings._replace(env_vars=None)
    resources = environment.settings.resources
    assert resources is not None
    assert resources.cpu is not None
    assert resources.gpu is not None
    assert resources.memory is not None
    assert (resources.cpu.requests, resources.gpu.limits, resources.memory.limits) == (8, 4, 65536)
    assert environment.timeout_s == (26 * 60 + 30) * 60
    assert (environment.slurm.account, environment.slurm.gpu_type) == ("me", "a100")
    assert (environment.python.modules, environment.python.venv) == (("python/3.11", "cuda/12"), "~/venv")
    assert any("Phalanx sets them" in note for note in notes)


def test_tasks_of_srun_become_ranks_of_mpi() -> None:
    document, notes = converted_script(_script("srun -n 4 ./solve --fast", "--ntasks=4", "--mem-per-cpu=512M"), "job")
    spec = _spec(document)
    assert (spec.framework, spec.command) == ("mpi", "./solve --fast")
    assert spec.environment.replicas is not None
    assert spec.environment.replicas.n_workers == 4
    assert any("ranks of MPI" in note for note in notes)


def test_a_script_that_only_bash_understands_is_kept_with_its_directives() -> None:
    body = "for n in 1 2; do\n  srun ./step $n\ndone\n"
    document, notes = converted_script(_script(body, "--nodes=2"), "job")
    spec = _spec(document)
    assert spec.environment.slurm.batch == (("nodes", "2"),)
    assert spec.command is not None
    assert body.strip() in spec.command
    assert any("kept as it is" in note for note in notes)


@pytest.mark.parametrize("text", ["echo ${#a[@]}", "echo '{{ x }}' {% y %}", "awk '{{print}}'", "plain"])
def test_the_text_of_a_script_is_never_a_template(text: str) -> None:
    document, _ = document_of_script(read_script(_script(text, "-n 1")), "job")
    assert _spec(document).command == _script(text, "-n 1").strip("\n")


def test_an_array_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match="kind: group"):
        converted_script(_script("ls", "--array=1-5"), "job")


@pytest.mark.parametrize(
    ("words", "framework", "workers"),
    [
        (["python", "train.py"], None, 0),
        (["torchrun", "--nproc-per-node", "4", "train.py"], None, 0),
        (["torchrun", "--nnodes", "3", "train.py"], "pytorch", 2),
        (["accelerate", "launch", "--nnodes=2", "train.py"], "pytorch", 1),
    ],
)
def test_a_command_becomes_a_run_with_the_framework_that_it_needs(
    words: list[str], framework: str | None, workers: int
) -> None:
    spec = _spec(document_of_command(words))
    replicas = spec.environment.replicas
    assert (spec.framework, replicas.n_workers if replicas is not None else 0) == (framework, workers)
    assert spec.command == " ".join(words)
