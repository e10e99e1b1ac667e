"""The logits path: rows of logits leave the engine and vLLM's own sampler draws, on the host.

Taken only when someone needs logits: a custom logits processor, or VLLM_METAL_TOPK_LOGITS=k, which hands over the k best of a
row and bars the rest. Slower than sampling in the engine, and without overlap: the next step has to wait for the tokens.
"""

from typing import Optional

import ingot
import numpy as np
import torch
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality, build_logitsprocs
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler

from .step_builder import GREEDY_BELOW


class Member:
    """A request in the sampler's batch."""

    def __init__(self, params, prompt: list[int], output: list[int], seed: int):
        self.params, self.prompt, self.output = params, prompt, output
        self.generator: Optional[torch.Generator] = None
        if params.seed is not None or params.temperature >= GREEDY_BELOW:
            self.generator = torch.Generator().manual_seed((seed if params.seed is None else params.seed) % 2**63)


class LogitsPath:
    """vLLM's sampler and logits processors, with the batch they see: row i of the logits is member i."""

    def __init__(self, vllm_config, vocab: int, seed: int):
        self.vocab = vocab
        self.top = ingot.settings()["topk_logits"]
        self.seeds = np.random.default_rng(seed)
        model = vllm_config.model_config
        self.sampler = Sampler()
        self.processors = build_logitsprocs(
            vllm_config, torch.device("cpu"), False, False, tuple(getattr(model, "logits_processors", None) or ())
        )
        self.batch: list[str] = []  # request of each row
        self.members: dict[str, Member] = {}

    def sample(self, req_ids: list[str], requests, known: list[np.ndarray], result, rows: np.ndarray, grammar):
        """Draws for requests `req_ids`, whose logits are rows `rows` of a step's result. `known`: their tokens so far.
        Returns tokens [n] and vLLM's LogprobsTensors or None, in the order of `req_ids`."""
        self._update(req_ids, requests, known)
        order = [req_ids.index(req_id) for req_id in self.batch]
        logits = torch.from_numpy(self._gather(result, rows[order]))
        if grammar is not None:
            _mask(logits, grammar, self.batch)
        output = self.sampler(logits, self._metadata())
        back = np.argsort(order)
        tokens = output.sampled_token_ids.numpy().reshape(-1)[back]
        for req_id, token in zip(req_ids, tokens.tolist()):
            self.members[req_id].output.append(token)
        logprobs = output.logprobs_tensors
        if logprobs is not None:
            logprobs = type(logprobs)(*(t[torch.from_numpy(back)] if torch.is_tensor(t) else t for t in logprobs))
        return tokens, logprobs

    def _gather(self, result, rows: np.ndarray) -> np.ndarray:
        """[n, vocab]. Full logits are the step's only output, one row each, in order."""
        if not self.top:
            return result.logits[rows]
        logits = np.full((len(rows), self.vocab), -np.inf, np.float32)
        np.put_along_axis(logits, result.top_ids[rows], result.top_values[rows], axis=1)
        return logits

    def _update(self, req_ids: list[str], requests, known) -> None:
        """Makes the batch those of `req_ids`, with as few moves as there can be, and tells the processors."""
        wanted = set(req_ids)
        holes = [i for i, req_id in enumerate(self.batch) if req_id not in wanted]
        removed, added, moved = list(holes), [], []
        present = wanted.intersection(self.batch)
        for i in holes:
            self.members.pop(self.batch[i])
        for req_id, request, tokens in zip(req_ids, requests, known):
            count = request.num_prompt
            if req_id in present:
                self.members[req_id].output[:] = tokens[count:].tolist()
                continue
            member = Member(request.params, tokens[:count].tolist(), tokens[count:].tolist(), int(self.seeds.integers(2**62)))
            self.members[req_id] = member
            at = holes.pop(0) if holes else len(self.batch)
            self.batch[at:at + 1] = [req_id]
            added.append((at, member.params, member.prompt, member.output))
        while holes:
            last = len(self.batch) - 1
            if last in holes:
                holes.remove(last)
            else:
                at = holes.pop(0)
                self.batch[at] = self.batch[last]
                moved.append((last, at, MoveDirectionality.UNIDIRECTIONAL))
            self.batch.pop()
        change = BatchUpdate(len(self.batch), removed, added, moved) if removed or added or moved else None
        for processor in self.processors.all:
            processor.update_state(change)

    def _metadata(self) -> SamplingMetadata:
        members = [self.members[req_id] for req_id in self.batch]
        params = [member.params for member in members]
        greedy = [p.temperature < GREEDY_BELOW for p in params]
        column = lambda name: torch.tensor([getattr(p, name) for p in params], dtype=torch.float32)
        top_k = [p.top_k if 0 < p.top_k < self.vocab else self.vocab for p in params]
        penalties = any(p.presence_penalty or p.frequency_penalty or p.repetition_penalty != 1.0 for p in params)
        prompts = None
        if penalties:
            prompts = torch.full((len(members), max(len(m.prompt) for m in members)), self.vocab, dtype=torch.int64)
            for i, member in enumerate(members):
                prompts[i, : len(member.prompt)] = torch.tensor(member.prompt)
        allowed = None
        if any(p.allowed_token_ids for p in params):
            allowed = torch.zeros((len(params), self.vocab), dtype=torch.bool)  # True bars
            for i, p in enumerate(params):
                if p.allowed_token_ids:
                    allowed[i] = True
                    allowed[i, p.allowed_token_ids] = False
        logprobs = [p.logprobs for p in params if p.logprobs is not None]
        return SamplingMetadata(
            temperature=None if all(greedy) else column("temperature"),
            all_greedy=all(greedy),
            all_random=not any(greedy),
            top_p=column("top_p") if any(p.top_p < 1 for p in params) else None,
            top_k=torch.tensor(top_k) if min(top_k) < self.vocab else None,
            generators={i: m.generator for i, m in enumerate(members) if m.generator is not None},
            max_num_logprobs=max(logprobs) if logprobs else None,
            no_penalties=not penalties,
            prompt_token_ids=prompts,
            frequency_penalties=column("frequency_penalty"),
            presence_penalties=column("presence_penalty"),
            repetition_penalties=column("repetition_penalty"),
            output_token_ids=[member.output for member in members],
            allowed_token_ids_mask=allowed,
            bad_words_token_ids={i: p.bad_words_token_ids for i, p in enumerate(params) if p.bad_words_token_ids},
            logitsprocs=self.processors,
        )


def _mask(logits: torch.Tensor, grammar, batch: list[str]) -> None:
    """Bars what the grammar does not allow. The bitmask has one line a structured request, 32 tokens a word."""
    bits = np.ascontiguousarray(grammar.grammar_bitmask).view(np.uint32)
    for line, req_id in enumerate(grammar.structured_output_request_ids):
        if req_id in batch:
            allowed = np.unpackbits(bits[line].view(np.uint8), bitorder="little")[: logits.shape[1]].astype(bool)
            logits[batch.index(req_id), ~torch.from_numpy(allowed)] = -float("inf")
