"""Real files, once they are converted, fit the JSON Schema that `phalanx schema` prints."""

from __future__ import annotations

import json

from jsonschema import Draft202012Validator

from phalanx import spec
from phalanx.errors import SpecErrors
from phalanx.spec.schema import json_schema
from phalanx.spec.yaml_writer import modern_document
from tests.corpus.folder import corpus


def test_real_files_of_other_people_fit_once_they_are_converted() -> None:
    validator = Draft202012Validator(json_schema())
    wrong, fine = {}, 0
    for file in sorted(corpus().rglob("*.y*ml")):
        try:
            loaded = spec.load([(file.name, file.read_bytes())])
        except SpecErrors:
            continue
        document = json.loads(json.dumps(modern_document(loaded)))
        found = [f"{list(error.absolute_path)}: {error.message[:200]}" for error in validator.iter_errors(document)]
        fine += not found
        if found:
            wrong[file.name] = found
    assert wrong == {}
    assert fine > 300
