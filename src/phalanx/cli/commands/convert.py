"""phalanx convert"""

from __future__ import annotations

import click

from phalanx.cli.called_programs import load_other
from phalanx.cli.options import file_options, json_option, load
from phalanx.cli.render.output import print_json, print_notes


@click.command("convert")
@file_options
@click.argument("other", metavar="[FILE]", required=False)
@json_option
def command(files: tuple[str, ...], params: tuple[str, ...], other: str | None, as_json: bool) -> None:
    """Print a file in the current format.

    Reads polyaxonfiles of all releases of Polyaxon, manifests of Kubernetes (TFJob, PyTorchJob, MPIJob, XGBoostJob,
    MXJob, TrainJob, Job), and scripts for sbatch: `phalanx convert job.yaml`, `phalanx convert job.sh`.

    Old names and dialects become `framework` and `environment.replicas`; templates are kept. Notes on how old fields
    were interpreted go to standard error. Comments are lost.
    """
    from phalanx.spec.model import thaw
    from phalanx.spec.yaml_writer import modern_document, to_yaml

    loaded = load_other(other, params) if other is not None else load(files, params)
    document = modern_document(loaded)
    if as_json:
        print_json(thaw(document), indent=2)
        return
    print_notes(loaded.notes, err=True)
    click.echo(to_yaml(document), nl=False)
