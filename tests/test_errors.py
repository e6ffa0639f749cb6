"""Errors, by who must act."""

from __future__ import annotations

import builtins
import errno
import os
import re
import subprocess

import pytest

from phalanx.artifacts.downloads import DigestMismatch
from phalanx.backends.contract import EngineUnavailable, JobRejected
from phalanx.backends.kubernetes.cluster.api import ApiFault, ApiUnreachable
from phalanx.client import RequestRefused, ServerUnreachable
from phalanx.errors import CallError, PhalanxError, StoreError, SystemFault, disk_fault, is_transient, path_error
from tests.source_trees import FILES


def test_docstrings_say_that_only_classes_that_exist_are_raised() -> None:
    texts = {module: file.read_text() for module, file in FILES.items()}
    classes = {name for text in texts.values() for name in re.findall(r"(?m)^\s*class (\w+)", text)}
    raised = [
        (module, name)
        for module, text in texts.items()
        for names in re.findall(r"\bRaises((?:,?\s+(?:(?:or|and)\s+)?[A-Z]\w+)+)", text)
        for name in re.findall(r"[A-Z]\w+", names)
    ]
    assert len(raised) > 100
    known = {*classes, *dir(builtins), *dir(subprocess)}
    assert [(module, name) for module, name in raised if name not in known] == []


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("fault", "transient"),
    [
        (EngineUnavailable("away"), True),
        (ApiUnreachable("away"), True),
        (ApiFault(429, "TooManyRequests", "", {}), True),
        (ApiFault(500, "InternalError", "", {}), True),
        (ApiFault(403, "Forbidden", "", {}), False),
        (ServerUnreachable("away"), True),
        (StoreError("locked"), True),
        (StoreError("damaged", transient=False), False),
        (DigestMismatch("other bytes"), False),
    ],
)
def test_a_fault_of_the_system_says_whether_it_may_pass(fault: SystemFault, transient: bool) -> None:
    assert isinstance(fault, SystemFault)
    assert not isinstance(fault, CallError)
    assert is_transient(fault) is transient


@pytest.mark.parametrize("fault", [JobRejected("no such partition"), RequestRefused("no", 403), CallError("no")])
def test_what_the_caller_must_change_never_passes_by_itself(fault: PhalanxError) -> None:
    assert isinstance(fault, CallError)
    assert not is_transient(fault)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EISDIR])
def test_a_path_that_cannot_be_used_is_the_callers_error(number: int) -> None:
    fault = path_error("cannot write /x", os_error(number), "name another")
    assert isinstance(fault, CallError)
    assert str(fault) == f"cannot write /x: {os.strerror(number).lower()}; name another"


@pytest.mark.parametrize(("number", "transient"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_full_or_failing_disk_is_a_fault_of_the_system(number: int, transient: bool) -> None:
    for fault in (path_error("cannot write /x", os_error(number)), disk_fault("cannot write /x", os_error(number))):
        assert isinstance(fault, SystemFault)
        assert fault.transient is transient


def test_what_is_missing_of_our_own_files_is_a_fault_of_the_system() -> None:
    fault = disk_fault("the run cannot be kept", os_error(errno.EACCES))
    assert (str(fault), fault.transient) == ("the run cannot be kept: permission denied", False)
