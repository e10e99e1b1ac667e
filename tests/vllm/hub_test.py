"""A model by its name on the hub: vLLM fetches configuration and tokenizer, the engine the weights, into one cache."""

import json
import os
import pathlib
import subprocess
import sys

from models import FIXTURES, native_tokens

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "hub"))
import fake_hub  # noqa: E402

# In a process of its own: whether the hub may be asked is decided when vLLM is imported.
CODE = """
import json
from vllm import LLM, SamplingParams
llm = LLM("owner/tiny", skip_tokenizer_init=True, max_model_len=128, num_gpu_blocks_override=64)
params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
print("tokens", json.dumps(llm.generate([{"prompt_token_ids": [5, 6, 7, 8]}], params)[0].outputs[0].token_ids))
"""


def test_a_name_is_fetched_and_answers_as_the_native_orchestrator_does(tmp_path):
    folder = FIXTURES / "qwen3-bf16"
    hub = fake_hub.Hub()
    try:
        hub.add("owner/tiny", {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix in (".json", ".safetensors")})
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
        run = subprocess.run(
            [sys.executable, "-c", CODE],
            env={**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        hub.close()
    assert run.returncode == 0, run.stderr[-3000:]
    tokens = [json.loads(line[7:]) for line in run.stdout.splitlines() if line.startswith("tokens ")]
    assert tokens == native_tokens(str(folder), [[5, 6, 7, 8]], 8)
