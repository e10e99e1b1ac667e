"""bench/vllm_throughput.py, and what it stands on: the times of steps, and processes that are not forked from one that has a GPU."""

import json
import os
import sys
from pathlib import Path

import pytest
from models import FIXTURES
from vllm_apple.platform import never_fork_a_gpu

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import vllm_throughput  # noqa: E402


def test_the_script_measures_both_sides(tmp_path, capsys):
    out = tmp_path / "figures.json"
    with pytest.raises(SystemExit) as end:
        vllm_throughput.main([
            "--model", str(FIXTURES / "llama-bf16-llama3"), "--load-format", "dummy", "--batch", "1,3", "--prompt-len", "40", "--gen-len", "10",
            "--rounds", "1", "--least", "1e9", "--json", str(out), "--vllm-args", '{"seed": 1}',
        ])
    assert end.value.code == 1, "every ratio is below a thousand million"
    rows = json.loads(out.read_text())["rows"]
    assert [row["batch"] for row in rows] == [1, 3]
    for row in rows:
        assert row["decode_native"] > 0 and row["whole_vllm"] > 0
        assert row["step_ms_vllm"] > 0, "steps of the batch's size were seen in the worker"
    assert capsys.readouterr().out.count("\n| ") == 3  # the heading and two batches


@pytest.mark.parametrize("device, method", [("cuda", "spawn"), ("cpu", "fork")])
def test_a_process_with_a_gpu_is_not_forked(monkeypatch, device, method):
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    monkeypatch.setenv("INGOT_DEVICE", device)
    never_fork_a_gpu()
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == method
