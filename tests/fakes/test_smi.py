"""Reports of nvidia-smi as fake machines: each figure of a real report comes out of the real binding again."""

from pathlib import Path

import pynvml
import pytest

from fakes import nodes, smi
from fakes.scenario import Scenario
from fakes.strict import ScenarioError
from tests.fakes.bound import bound, refusal

CAPTURES = Path(__file__).parents[3] / "shared/captures"

TEXT = """
==============NVSMI LOG==============

Timestamp                                              : Fri Jul  3 22:22:00 2026
Driver Version                                         : 590.48.01
CUDA Version                                           : 13.1

Attached GPUs                                          : 2
GPU 00000000:1B:00.0
    Product Name                                       : NVIDIA H100 80GB HBM3
    Product Brand                                      : NVIDIA
    Product Architecture                               : Hopper
    MIG Mode
        Current                                        : Enabled
        Pending                                        : Disabled
    MIG Device
        Index                                          : 0
        GPU Instance ID                                : 1
        Compute Instance ID                            : 0
        Device Attributes
            Shared
                Multiprocessor count                   : 60
                Copy Engine count                      : 3
                Decoder count                          : 3
                JPG count                              : 3
        FB Memory Usage
            Total                                      : 40448 MiB
            Reserved                                   : 0 MiB
            Used                                       : 31 MiB
    GPU UUID                                           : GPU-00000000-0000-0000-0000-000000000000
    PCI
        Device Id                                      : 0x233010DE
        Bus Id                                         : 00000000:1B:00.0
        Sub System Id                                  : 0x16C110DE
    Clocks Event Reasons
        Idle                                           : Not Active
        HW Slowdown                                    : Active
            HW Thermal Slowdown                        : Active
            HW Power Brake Slowdown                    : Not Active
    FB Memory Usage
        Total                                          : 81559 MiB
        Reserved                                       : 479 MiB
        Used                                           : 0 MiB
    ECC Mode
        Current                                        : Enabled
        Pending                                        : Enabled
    ECC Errors
        Volatile
            SRAM Correctable                           : 1
            SRAM Uncorrectable Parity                  : 2
            SRAM Uncorrectable SEC-DED                 : 3
            DRAM Correctable                           : 4
            DRAM Uncorrectable                         : 5
    Fabric
        State                                          : Completed
        Status                                         : Insufficient Resources
        CliqueId                                       : 7
        ClusterUUID                                    : 00112233-4455-6677-8899-aabbccddeeff
    Processes                                          : None
GPU 00000000:43:00.0
    Product Name                                       : NVIDIA H100 80GB HBM3
    Product Architecture                               : Hopper
    MIG Mode
        Current                                        : N/A
    GPU UUID                                           : GPU-00000000-0000-0000-0000-000000000000
    PCI
        Device Id                                      : 0x233010DE
        Bus Id                                         : 00000000:43:00.0
    FB Memory Usage
        Total                                          : [GPU is lost]
    Processes                                          : None
"""


def capture(name: str) -> Scenario:
    if not CAPTURES.is_dir():
        pytest.skip("the captures are not beside this checkout")
    return nodes.load(str(CAPTURES / name))


CAPTURED = {
    "a100-sxm4-v12.xml": {
        "driver": ("535.54.03", 12020), "product": "NVIDIA A100-SXM4-80GB", "ids": (0x20B210DE, 0x147F10DE),
        "mib": (81920, 869, 50), "capability": (8, 0), "clocks": (1410, 1593),
    },
    "h100-80gb-hbm3_590.48.01.q.txt": {
        "driver": ("590.48.01", 13010), "product": "NVIDIA H100 80GB HBM3", "ids": (0x233010DE, 0x16C110DE),
        "mib": (81559, 479, 0), "capability": (9, 0), "clocks": (1980, 2619),
    },
    "h200-mig_590.48.01.q.txt": {
        "driver": ("590.48.01", 13010), "product": "NVIDIA H200", "ids": (0x233510DE, 0x18BE10DE),
        "mib": (143771, 614, 55), "capability": (9, 0), "clocks": (1980, 3201),
    },
    "l40s_595.80.q.txt": {
        "driver": ("595.80", 13020), "product": "NVIDIA L40S", "ids": (0x26B910DE, 0x185110DE),
        "mib": (46068, 609, 0), "capability": (8, 9), "clocks": (2520, 9001),
    },
    "rtx-3080-v12.xml": {
        "driver": ("536.40", 12020), "product": "NVIDIA GeForce RTX 3080", "ids": (0x221610DE, 0x161219DA),
        "mib": (10240, 173, 1128), "capability": (8, 6), "clocks": (2100, 9501),
    },
    "tesla-t4.xml": {
        "driver": ("515.105.01", 11070), "product": "Tesla T4", "ids": (0x1EB810DE, 0x12A210DE),
        "mib": (15360, 388, 1032), "capability": (7, 5), "clocks": (1590, 5001),
    },
}  # fmt: skip
"""What the captures print, read by eye."""


@pytest.mark.parametrize(("name", "printed"), CAPTURED.items(), ids=CAPTURED)
def test_the_figures_of_a_capture_come_out_of_the_binding(name, printed):
    with bound(capture(name)):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pci = pynvml.nvmlDeviceGetPciInfo_v3(handle)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        assert {
            "driver": (pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion_v2()),
            "product": pynvml.nvmlDeviceGetName(handle),
            "ids": (pci.pciDeviceId, pci.pciSubSystemId),
            "mib": tuple(size >> 20 for size in (memory.total, memory.reserved, memory.used)),
            "capability": pynvml.nvmlDeviceGetCudaComputeCapability(handle),
            "clocks": tuple(pynvml.nvmlDeviceGetMaxClockInfo(handle, domain) for domain in (1, 2)),
        } == printed


def parts(scenario: Scenario, number: int = 0) -> list[tuple[str, int, int, int, int]]:
    """Return profile, ids, MiB and multiprocessors of each MIG device."""
    with bound(scenario):
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        found = []
        for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except pynvml.NVMLError_NotFound:
                continue
            found.append(
                (
                    pynvml.nvmlDeviceGetName(part).rpartition("MIG ")[2],
                    pynvml.nvmlDeviceGetGpuInstanceId(part),
                    pynvml.nvmlDeviceGetComputeInstanceId(part),
                    pynvml.nvmlDeviceGetMemoryInfo(part).total >> 20,
                    pynvml.nvmlDeviceGetAttributes_v2(part).multiprocessorCount,
                )
            )
        return found


def test_partitions_take_their_names_from_the_list_beside_the_report():
    assert parts(capture("h200-mig_590.48.01.q.txt")) == [
        ("1c.3g.71gb", 2, 0, 71424, 16),
        ("2c.3g.71gb", 2, 1, 71424, 32),
        ("2g.35gb", 3, 0, 33280, 32),
        ("1g.18gb", 9, 0, 16384, 16),
        ("1g.18gb", 10, 0, 16384, 16),
    ]


def test_without_the_list_the_sizes_and_engines_tell_the_same_names():
    text = (
        (CAPTURES / "h200-mig_590.48.01.q.txt").read_text()
        if CAPTURES.is_dir()
        else pytest.skip("no captures")
    )
    alone = smi.scenario_of_report(text, name="alone")
    assert [name for name, *_ in parts(alone)] == [
        "1c.3g.71gb",
        "2c.3g.71gb",
        "2g.35gb",
        "1g.18gb",
        "1g.18gb",
    ]


def test_equal_sizes_are_told_apart_by_engines():
    assert parts(capture("a100-sxm4-v12.xml")) == [
        ("1g.20gb", number, 0, 19968, 14) for number in (3, 4, 5, 6)
    ]


def test_a_text_report_is_read_line_by_line():
    with bound(smi.scenario_of_report(TEXT, name="text")):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetMigMode(handle) == [1, 0]
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle) == 0x8 | 0x40
        errors = [pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, 0) for kind in (0, 1)]
        assert errors == [5, 10]
        assert refusal(pynvml.nvmlDeviceGetMinorNumber, handle) == 3
    assert parts(smi.scenario_of_report(TEXT, name="text")) == [("3g.40gb", 1, 0, 40448, 60)]


def test_the_fabric_of_a_report_keeps_its_state_status_and_domain():
    fabric = smi.scenario_of_report(TEXT, name="text").devices[0].fabric
    assert (fabric.state, fabric.status, fabric.clique, fabric.cluster_uuid) == (
        "completed",
        23,
        7,
        "00112233-4455-6677-8899-aabbccddeeff",
    )


def test_an_error_in_place_of_a_value_becomes_that_error():
    with bound(smi.scenario_of_report(TEXT, name="text")):
        handle = pynvml.nvmlDeviceGetHandleByIndex(1)
        assert refusal(pynvml.nvmlDeviceGetMemoryInfo, handle) == 15


def test_uuids_that_were_blanked_out_alike_are_made_different():
    uuids = [device.uuid for device in smi.scenario_of_report(TEXT, name="text").devices]
    assert len(set(uuids)) == 2


def test_a_partition_whose_profile_cannot_be_told_asks_for_the_list():
    with pytest.raises(ScenarioError, match="nvidia-smi -L"):
        smi.scenario_of_report(TEXT.replace("40448 MiB", "55555 MiB"), name="text")


def test_a_profile_that_no_board_lists_is_taken_from_the_list():
    listed = "GPU 0: NVIDIA H100 (UUID: GPU-1)\n  MIG 3g.55gb     Device  0: (UUID: MIG-1)\n"
    odd = smi.scenario_of_report(TEXT.replace("40448 MiB", "55555 MiB"), name="text", listed=listed)
    assert parts(odd) == [("3g.55gb", 1, 0, 55555, 60)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            '<!DOCTYPE x [<!ENTITY a "aa">]><nvidia_smi_log/>', "declares XML entities", id="entities"
        ),
        pytest.param("<nvidia_smi_log><gpu>", "not a whole report", id="cut XML"),
        pytest.param("<nvidia_smi_log></nvidia_smi_log>", "no driver version", id="empty XML"),
        pytest.param("====NVSMI LOG====\n", "no driver version", id="empty text"),
        pytest.param(
            TEXT[: TEXT.index("Attached GPUs")],
            "not a whole report.*no count, 0 in the report",
            id="cut head",
        ),
        pytest.param(
            TEXT[: TEXT.index("GPU 00000000:43")],
            "not a whole report.*2 attached, 1 in the report",
            id="text cut between GPUs",
        ),
        pytest.param(
            TEXT[: TEXT.rindex("    FB Memory Usage")],
            "not a whole report.*GPU 00000000:43:00.0 ends before its processes",
            id="text cut within a GPU",
        ),
    ],
)
def test_a_report_that_is_hostile_or_cut_is_refused(text, message):
    with pytest.raises(ScenarioError, match=message):
        smi.scenario_of_report(text, name="bad")


@pytest.mark.parametrize(
    ("name", "text", "report"),
    [
        pytest.param("a.yaml", "name: x\ndevices: []\n", False, id="scenario"),
        pytest.param("a.txt", TEXT, True, id="text"),
        pytest.param("a.data", "<?xml version='1.0'?><nvidia_smi_log></nvidia_smi_log>", True, id="XML"),
    ],
)
def test_files_are_told_apart_by_their_content(name, text, report):
    assert (name, smi.is_report(text)) == (name, report)
