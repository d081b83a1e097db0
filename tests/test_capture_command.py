"""`capture`: the file that it writes, and what it says."""

import pytest

from agent import cli
from fakes import nodes


def run(capsys, *argv):
    status = cli.main(argv, program="accelerator-agent", environment={})
    return status, *capsys.readouterr()


def labels(capsys, source):
    status, out, _ = run(capsys, "labels", "--fake", source)
    assert status == 0
    return out


@pytest.mark.parametrize("name", ["h100x8", "a100-80-mig", "orin"])
def test_a_captured_machine_gets_the_labels_of_the_machine(name, tmp_path, capsys):
    file = tmp_path / "machine.yaml"
    status, out, err = run(capsys, "capture", "--fake", name, str(file))
    assert (status, out) == (0, "")
    assert err.startswith(f"wrote {file}: {len(nodes.node(name).devices)} devices, ")
    assert labels(capsys, str(file)) == labels(capsys, name)


def test_a_capture_goes_to_standard_output_where_that_is_asked_for(capsys):
    status, out, _ = run(capsys, "capture", "--fake", "t4", "-")
    assert status == 0
    assert "\nname: capture\n" in out


def test_a_machine_that_could_not_be_asked_is_captured_all_the_same(tmp_path, capsys):
    file = tmp_path / "machine.yaml"
    status, _, err = run(capsys, "capture", "--fake", "version-mismatch", str(file))
    assert (status, err) == (
        0,
        f"wrote {file}: 0 devices, 0 failures in the script, verdict version-mismatch (DriverLibraryMismatch)\n",
    )
    assert run(capsys, "probe", "--fake", str(file))[0] == 5


def test_a_file_that_cannot_be_written_is_bad_input(tmp_path, capsys):
    status, _, err = run(capsys, "capture", "--fake", "t4", str(tmp_path / "no" / "such" / "folder"))
    assert status == 2
    assert "cannot be written: No such file or directory" in err


def test_doctor_takes_a_capture_for_the_machine(tmp_path, capsys):
    file = tmp_path / "machine.yaml"
    run(capsys, "capture", "--fake", "h100x8-one-lost", str(file))
    status, out, _ = run(capsys, "doctor", "--fake", str(file), "-o", "json")
    assert (status, out.rstrip().endswith('"findings": [\n    "devices"\n  ]\n}')) == (1, True)
