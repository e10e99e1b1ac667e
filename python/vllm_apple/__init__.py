"""vLLM's platform plugin for Ingot: vLLM plans and serves, the engine runs the model."""

import os


def register():
    """Called by vLLM in every process while it looks for its platform: cheap, and without importing torch."""
    if os.environ.get("VLLM_APPLE_USE_ENGINE") == "0" or os.environ.get("VLLM_PLATFORM", "apple") != "apple":
        return None
    # The model runner of vLLM that this worker stands in for; without it 0.32.0 chooses by whether Triton works.
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
    return "vllm_apple.platform.ApplePlatform"
