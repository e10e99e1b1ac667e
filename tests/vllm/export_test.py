"""`ingot export-hf`: Hugging Face's tokenizer of the written folder is the GGUF's own."""

import base64
import json
from pathlib import Path

import ingot
import pytest

CORPUS = Path(__file__).parents[1] / "fixtures" / "tokenizers" / "corpus.json"
MESSAGES = [{"role": "user", "content": "Why is the sky blue?"}, {"role": "assistant", "content": "Scattering."}]


@pytest.fixture(scope="module")
def both(default_folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(default_folder), ingot.LLM(device="cpu")


def test_every_text_of_the_corpus(both):
    theirs, ours = both
    texts = []
    for entry in json.loads(CORPUS.read_text()):
        try:
            texts.append(base64.b64decode(entry).decode())
        except UnicodeDecodeError:  # bytes that are no text cannot be given to Hugging Face's
            pass
    assert len(texts) > 250
    wrong = [t for t in texts if theirs.encode(t, add_special_tokens=False) != ours.tokenize(t, parse_special=True)]
    assert wrong == []


def test_special_tokens_and_the_chat_template(both, default_folder):
    theirs, ours = both
    text = theirs.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert theirs.encode(text, add_special_tokens=False) == ours.tokenize(text, parse_special=True)
    assert theirs.encode("<|im_start|>", add_special_tokens=False) == [1]
    assert theirs.eos_token == "<|im_end|>" and theirs.eos_token_id == 2
    assert len(theirs) == json.loads((Path(default_folder) / "config.json").read_text())["vocab_size"]


def test_the_weights_are_not_copied(default_folder):
    files = [path for path in Path(default_folder).iterdir() if path.suffix == ".gguf"]
    assert len(files) == 1
    assert files[0].samefile(ingot.default_model()) or files[0].stat().st_dev != Path(ingot.default_model()).stat().st_dev
