"""Detects which tool wrote a source."""

from __future__ import annotations

from pathlib import Path

from phalanx.errors import CallError, path_error
from phalanx.exchange import phalanx_runs
from phalanx.formats import (
    metric_tables,
    mlflow_files,
    mlflow_sqlite,
    optuna_studies,
    tensorboard,
    wandb_log,
    wandb_runs,
    zip_archives,
)
from phalanx.formats.foreign_run import FoundRuns
from phalanx.formats.safe_files import walk

LOOKED_AT = 20_000  # files of a folder searched for the first known one


def path_of(source: str) -> Path:
    """The path of a source; also accepts `sqlite:///mlflow.db` and `file:///…`. Raises CallError."""
    for scheme in ("sqlite:///", "file://"):
        if source.startswith(scheme):
            source = source.removeprefix(scheme)
    if "://" in source:
        raise CallError(f"{source}: only local files and folders can be imported; download it first")
    path = Path(source).expanduser()
    try:
        path.stat()
    except OSError as fault:
        raise path_error(f"cannot read {source}", fault) from None
    except ValueError:
        raise CallError(f"{source!r} is not a valid file name") from None
    return path


def kind_of(path: Path) -> str:
    """The format of a source. Raises CallError when it is unknown."""
    found = _kind_of_file(path) if path.is_file() else _kind_of_folder(path)
    if found is None:
        raise CallError(
            f"{path} has no known format. Supported: MLflow's `mlruns` or database, a folder of TensorBoard or W&B, a "
            "database or journal of Optuna, a CSV or JSON file of metrics, or a run of Phalanx. Set the format with "
            "--from"
        )
    return found


def _kind_of_file(path: Path) -> str | None:
    if mlflow_sqlite.is_database(path):
        return "mlflow"
    if optuna_studies.is_database(path) or optuna_studies.is_journal(path):
        return "optuna"
    if wandb_log.is_log(path):
        return "wandb"
    if tensorboard.is_event_file(path):
        return "tensorboard"
    if zip_archives.is_zip(path):
        return "phalanx"
    return "csv" if metric_tables.is_table(path) else None


def _kind_of_folder(folder: Path) -> str | None:
    if phalanx_runs.runs_in(folder):
        return "phalanx"
    if mlflow_in(folder):
        return "mlflow"
    if wandb_runs.logs_in(folder):
        return "wandb"
    has_table = False
    for number, (_, path) in enumerate(walk(folder)):
        if tensorboard.is_event_file(path):
            return "tensorboard"
        has_table = has_table or path.name in metric_tables.KNOWN_NAMES
        if number > LOOKED_AT:
            break
    return "csv" if has_table else None


def mlflow_in(folder: Path) -> list[Path]:
    """MLflow's stores in a folder: itself, or its `mlruns`, or its databases."""
    if mlflow_files.is_experiment(folder) or mlflow_files.is_store(folder):
        return [folder]
    found = [path for path in sorted(folder.glob("*.db")) if mlflow_sqlite.is_database(path)]
    return found + ([folder / "mlruns"] if mlflow_files.is_store(folder / "mlruns") else [])


def find(path: Path, kind: str, run_name: str | None = None) -> FoundRuns:
    """The runs of a source of another tool. Raises CallError."""
    if kind == "mlflow":
        return _find_mlflow(path)
    if kind == "tensorboard":
        return tensorboard.find(path)
    if kind == "wandb":
        return wandb_runs.find(path)
    if kind == "optuna":
        return _find_optuna(path)
    return metric_tables.find(path, run_name, of_any_name=True)


def _find_mlflow(path: Path) -> FoundRuns:
    if path.is_file():
        return mlflow_sqlite.find(path)
    stores = mlflow_in(path)
    if len(stores) > 1:
        raise CallError(f"{path} has several MLflow stores: import one of {', '.join(map(str, stores))}")
    if not stores:
        raise CallError(f"{path} is not an MLflow store: pass its `mlruns` folder or its database")
    return mlflow_sqlite.find(stores[0]) if stores[0].is_file() else mlflow_files.find(stores[0])


def _find_optuna(path: Path) -> FoundRuns:
    if not path.is_file():
        raise CallError(f"{path} is a folder: pass the SQLite file or the journal file of an Optuna study")
    return optuna_studies.find(path)
