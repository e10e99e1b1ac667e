"""What every test of the plugin has in common. Run them with `make test-vllm`, or in an environment with vLLM and this package:
python -m pytest."""

import os

# Before vLLM is imported: nothing is looked up on the network, nothing is reported, one process unless a test starts more.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("INGOT_DEVICE", "cpu")
os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by itself: on a busy machine its workers would not even start

import pytest
from models import export_default_model


@pytest.fixture(scope="session")
def default_folder(tmp_path_factory):
    """The default model as a folder that vLLM reads."""
    return export_default_model(tmp_path_factory.mktemp("default"))
