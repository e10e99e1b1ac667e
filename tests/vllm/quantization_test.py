"""`quantization` behind vLLM: checkpoints that are quantized already, and plain ones that are rounded at load."""

import ingot
import pytest
from models import FIXTURES, generate, native_tokens, tiny_prompts, tokens_of, vllm_llm

NEW = 16
PLAIN = str(FIXTURES / "llama-bf16-llama3")


@pytest.mark.parametrize("name", ["llama-awq-g64", "llama-gptq-g128-sym", "llama-mlx-4bit"])
def test_quantized_checkpoints_need_no_flag(name):
    model, prompts = str(FIXTURES / name), tiny_prompts()[:3]
    with vllm_llm(model, skip_tokenizer_init=True, dtype="float16") as llm:
        assert tokens_of(generate(llm, prompts, NEW)) == native_tokens(model, prompts, NEW)


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_rounded_at_load(name):
    prompts = tiny_prompts()[:3]
    native = ingot.LLM(PLAIN, device="cpu", quantize=name)
    expected = [native.generate(ids, max_tokens=NEW, temperature=0, ignore_eos=True).choices[0].token_ids for ids in prompts]
    with vllm_llm(PLAIN, skip_tokenizer_init=True, quantization=name) as llm:
        assert tokens_of(generate(llm, prompts, NEW)) == expected
    if name == "int4":
        assert expected != native_tokens(PLAIN, prompts, NEW), "nothing was rounded"


def test_the_command_line_knows_the_names():
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    assert parser.parse_args(["--quantization", "int4"]).quantization == "int4"


def test_what_the_engine_cannot_round_to_is_declined():
    with pytest.raises(ValueError, match="quantization fp8: weights are rounded at load by int8 and int4"):
        with vllm_llm(PLAIN, skip_tokenizer_init=True, quantization="fp8"):
            pass
