"""vLLM's platform plugin for Ingot: vLLM plans and serves, the engine runs the model."""

import os


def register():
    """Called by vLLM in every process while it looks for its platform: cheap, and without importing torch."""
    if os.environ.get("VLLM_APPLE_USE_ENGINE") == "0":
        return None
    return "vllm_apple.platform.ApplePlatform"
