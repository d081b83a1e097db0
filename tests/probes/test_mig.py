"""Partitions: their names when the driver withholds something, and what is said when they cannot be read."""

import pytest

from probes.facts import FieldProblem, Mig
from probes.nvml_mig import profile_in
from tests.probes.probing import device, devices, h100, h100_mig, machine

PROFILES = ["1c.3g.40gb", "2c.3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb+me"]


def profiles(*failures):
    mig = device(machine(h100_mig(), failures=list(failures))).mig
    assert mig is not None
    assert mig.partitions is not None
    return [part.profile for part in mig.partitions]


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA H200 MIG 1c.3g.71gb", "1c.3g.71gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb+me.all", "1g.24gb+me.all"),
        ("NVIDIA RTX PRO 6000 MIG 2g.48gb-me ", "2g.48gb-me"),
        ("MIG 1g.5gb", "1g.5gb"),
        ("NVIDIA A100-SXM4-80GB", None),
        ("NVIDIA A100 MIG ", None),
        ("", None),
        (None, None),
    ],
)
def test_fr_066_the_profile_is_what_follows_the_word_mig(name, profile):
    assert profile_in(name) == profile


@pytest.mark.parametrize(
    "failure",
    [
        {"function": "nvmlDeviceGetName", "code": 3},
        {"function": "nvmlDeviceGetName", "code": 999},
        {"function": "nvmlDeviceGetName", "bytes": "f8ff"},
        {"function": "nvmlDeviceGetName", "value": "NVIDIA H100 80GB HBM3"},
    ],
    ids=["not supported", "unknown", "undecodable", "without a profile"],
)
def test_fr_066_a_name_that_does_not_tell_gives_way_to_the_profile_of_the_instance(failure):
    assert profiles(failure) == PROFILES


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetGpuInstanceById",
        "nvmlGpuInstanceGetInfo",
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        "nvmlDeviceGetAttributes_v2",
        "nvmlDeviceGetGpuInstanceId",
    ],
)
def test_a_profile_that_cannot_be_told_is_not_guessed(function):
    assert (
        profiles({"function": "nvmlDeviceGetName", "code": 3}, {"function": function, "code": 4})
        == [None] * 5
    )


def test_attributes_stay_when_the_profile_cannot_be_told():
    failures = [
        {"function": name, "code": 4} for name in ("nvmlDeviceGetName", "nvmlDeviceGetGpuInstanceById")
    ]
    mig = device(machine(h100_mig(), failures=failures)).mig
    assert mig is not None
    assert mig.partitions is not None
    first = mig.partitions[0]
    assert (first.profile, first.gpu_instance_slices, first.compute_instance_slices) == (None, 3, 1)
    assert first.memory_bytes == 40448 << 20


def test_a_partition_without_a_memory_answer_has_the_size_of_its_attributes():
    failures = [{"function": "nvmlDeviceGetMemoryInfo", "code": 4}]
    mig = device(machine(h100_mig(), failures=failures)).mig
    assert mig is not None
    assert [part.memory_bytes for part in mig.partitions or ()][:3] == [40448 << 20, 40448 << 20, 20096 << 20]


def test_fr_073_the_slice_has_its_size_where_the_parent_may_not_be_read():
    """FR-073."""
    failures = [{"function": "nvmlDeviceGetMemoryInfo_v2", "code": 4}]
    found = device(machine(h100_mig(), failures=failures))
    assert found.memory_bytes is None
    assert found.problems == (FieldProblem(field="memory", error="no-permission"),)
    assert found.mig is not None
    assert [part.memory_bytes for part in found.mig.partitions or ()][3] == 9856 << 20


@pytest.mark.parametrize(
    ("code", "error"),
    [(4, "no-permission"), (19, "in-use"), (10, "timeout"), (999, "unknown"), (16, "reset-required")],
)
def test_fr_073_partitions_that_refuse_are_not_known_and_say_why(code, error):
    failures = [{"function": "nvmlDeviceGetMigDeviceHandleByIndex", "code": code}]
    found = device(machine(h100_mig(), failures=failures))
    assert found.mig == Mig(enabled=True, pending_enabled=True, partitions=None)
    assert found.problems == (FieldProblem(field="mig.partitions", error=error),)
    assert found.fault is None
    assert found.product == "NVIDIA H100 80GB HBM3"


def test_one_partition_that_refuses_does_not_hide_the_others():
    failures = [{"function": "nvmlDeviceGetMigDeviceHandleByIndex", "call": 2, "code": 999}]
    found = device(machine(h100_mig(), failures=failures))
    assert found.mig is not None
    assert [part.profile for part in found.mig.partitions or ()] == PROFILES[:1] + PROFILES[2:]
    assert found.problems == (FieldProblem(field="mig.partitions", error="unknown"),)


def test_fr_065_a_mode_that_is_on_without_instances_has_no_partition():
    """FR-065."""
    found = device(machine(h100(mig={"enabled": True})))
    assert (found.mig, found.problems) == (Mig(enabled=True, pending_enabled=True, partitions=()), ())


@pytest.mark.parametrize(
    ("enabled", "pending"), [(False, True), (True, False)], ids=["switching on", "switching off"]
)
def test_a_pending_change_shows_both_modes(enabled, pending):
    """FR-070."""
    found = device(machine(h100(mig={"enabled": enabled, "pending": pending})))
    assert found.mig == Mig(enabled=enabled, pending_enabled=pending, partitions=())


def test_fr_070_calls_on_mig_that_want_a_reset_leave_the_device_and_its_product():
    """FR-070."""
    failures = [{"function": "nvmlDeviceGet*Mig*", "code": 16}]
    found = device(machine(h100(mig={"enabled": True, "pending": False}), failures=failures))
    assert (found.fault, found.product) == (None, "NVIDIA H100 80GB HBM3")
    assert found.problems == (FieldProblem(field="mig", error="reset-required"),)


@pytest.mark.parametrize("count", [2**32 - 1, 65], ids=hex)
def test_a_number_of_partitions_that_cannot_be_is_not_believed(count):
    failures = [{"function": "nvmlDeviceGetMaxMigDeviceCount", "value": count}]
    found = device(machine(h100_mig(), failures=failures))
    assert found.mig == Mig(enabled=True, pending_enabled=True, partitions=None)
    assert found.problems == (FieldProblem(field="mig.partitions", error="implausible"),)


def test_a_board_that_cannot_be_cut_has_no_mig():
    assert device(machine({"board": "l40s"})).mig is None


def test_the_other_gpus_do_not_notice():
    failures = [{"function": "nvmlDeviceGet*Mig*", "device": 0, "code": 999}]
    sound = devices(machine(h100_mig(), h100_mig()))
    assert devices(machine(h100_mig(), h100_mig(), failures=failures))[1] == sound[1]
