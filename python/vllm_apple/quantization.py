"""`--quantization int8` and `int4`: the engine rounds the weights of any checkpoint while it loads them.

vLLM wants a class for every name; these carry the name and nothing else. Checkpoints that are quantized already (AWQ, GPTQ)
keep vLLM's own names and classes, which the engine does not use either."""

AT_LOAD = ("int8", "int4")


def register(parser=None) -> None:
    """Makes the names known to vLLM, and to the parser of its command line."""
    import torch
    from vllm.model_executor.layers import quantization
    from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

    for name in AT_LOAD:
        if name not in quantization.QUANTIZATION_METHODS:
            quantization.register_quantization_config(name)(_make_class(name, torch, QuantizationConfig))
    action = parser._option_string_actions.get("--quantization") if parser is not None else None
    if action is not None and action.choices is not None:
        action.choices = [*action.choices, *(name for name in AT_LOAD if name not in action.choices)]


def at_load(model_config) -> str:
    """What the engine is to make of the weights; empty: they stay as they are stored."""
    return model_config.quantization if model_config.quantization in AT_LOAD else ""


def is_stored(model_config) -> bool:
    """Whether the checkpoint itself says how it is quantized: the engine reads that, and declines what it does not know."""
    return getattr(model_config.hf_config, "quantization_config", None) is not None


def _make_class(name: str, torch, base):
    class AtLoad(base):
        @classmethod
        def get_name(cls):
            return name

        @classmethod
        def get_supported_act_dtypes(cls):
            return [torch.float16, torch.bfloat16, torch.float32]

        @classmethod
        def get_min_capability(cls):
            return 0

        @staticmethod
        def get_config_filenames():
            return []

        @classmethod
        def from_config(cls, config):
            return cls()

        def get_quant_method(self, layer, prefix):
            return None

    return AtLoad
