"""`phalanx run -- COMMAND`, `phalanx run SCRIPT` and `phalanx convert FILE` take what is no polyaxonfile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.running import quick

SCRIPT = '#!/bin/bash\n#SBATCH -J tiny --nodes=1\n#SBATCH -o x.out\nnames=(a b)\necho "${#names[@]} $*"\n'


def test_a_command_line_runs_without_a_file(place: Place) -> None:
    answer = place.call("run", "--", "python3", "-c", "print('a  b', {'x': 1})")
    assert answer.code == 0, answer.err
    assert "a  b {'x': 1}" in answer.out


def test_a_script_for_sbatch_runs_as_it_is(place: Place) -> None:
    (place.folder / "job.sh").write_text(SCRIPT)
    answer = place.call("run", "job.sh", "x  y")
    assert answer.code == 0, answer.err
    assert "2 x  y" in answer.out
    assert "note: job.sh: `--output` is left out" in answer.err


def test_the_job_of_a_script_has_its_own_directives(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT.replace("nodes=1", "nodes=2 --ntasks-per-node=3"))
    converted = quick("convert", str(script))
    assert converted.code == 0, converted.err
    rendered = quick("plan", "--on", "slurm", "-f", "-", stdin=converted.out)
    lines = [line for line in rendered.out.splitlines() if line.startswith("#SBATCH")]
    assert {"#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=3"} <= set(lines)
    assert not any("cpus-per-task" in line or "--ntasks=" in line for line in lines)
    assert '"${agent[@]}" --stay' in rendered.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SCRIPT.replace("-o x.out", "--array=1-3"), "`--array`"),
        (SCRIPT.replace("/bin/bash", "/usr/bin/python3"), "only scripts for bash and sh"),
        (SCRIPT.replace("-o x.out", "nonsense"), "line 3: `nonsense` is no option of sbatch"),
    ],
)
def test_a_script_that_cannot_run_as_it_is_is_refused(place: Place, text: str, words: str) -> None:
    (place.folder / "job.sh").write_text(text)
    answer = place.call("run", "job.sh")
    assert answer.code == 2
    assert words in answer.err


def test_a_polyaxonfile_still_needs_its_option(place: Place) -> None:
    answer = place.call("run", "polyaxonfile.yml")
    assert answer.code == 2
    assert "write -f before the file of a run" in answer.err


def test_a_manifest_is_converted(tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: tiny}\nspec: {template: {spec: "
        "{containers: [{name: a, image: b, command: [echo, hi there]}]}}}\n"
    )
    answer = quick("convert", str(manifest))
    assert answer.code == 0, answer.err
    assert "cmd: echo 'hi there'" in answer.out
