"""vLLM's SchedulerOutput as one Step.

The state of the running requests is kept in arrays with a row a request, so that a step is put together by array
operations: Python's work grows with the requests of a step, never with their tokens.
"""

import threading
from dataclasses import dataclass, field, replace
from typing import Optional

import ingot
import numpy as np

GREEDY_BELOW = 1e-5  # vLLM's own bound for "temperature 0"
NOTHING = np.zeros(0, np.int32)


@dataclass(eq=False)
class Request:
    """A request that vLLM has handed over and not finished."""

    params: object  # vLLM's SamplingParams
    sampling: ingot.StepSampling
    num_prompt: int
    row: int = -1  # in the arrays; -1: preempted
    computed: int = 0  # tokens whose K and V are in the cache before this step
    structured: bool = False
    needs_history: bool = False
    history_ready: bool = False  # the sampler slot was written since the row was taken
    prompt_logprobs: int = -1  # alternatives a prompt token; -1: none wanted
    prompt_scores: Optional["PromptScores"] = None


@dataclass
class PromptScores:
    """Logprobs of a prompt, gathered over its chunks. [num_prompt - 1, top + 1]; column 0 is the prompt's own token."""

    ids: np.ndarray
    logprobs: np.ndarray
    ranks: np.ndarray
    done: bool = False

    @classmethod
    def empty(cls, num_prompt: int, top: int) -> "PromptScores":
        shape = (num_prompt - 1, top + 1)
        return cls(np.zeros(shape, np.int32), np.zeros(shape, np.float32), np.zeros(num_prompt - 1, np.int32))

    def store(self, start: int, result, rows: np.ndarray) -> None:
        """Rows of a step's result are the scores of positions start + 1 ... of the prompt."""
        at, top = slice(start, start + len(rows)), self.ids.shape[1] - 1
        self.ids[at, 0], self.logprobs[at, 0] = result.tokens[rows], result.logprobs[rows]
        self.ids[at, 1:], self.logprobs[at, 1:] = result.top_ids[rows, :top], result.top_values[rows, :top]
        self.ranks[at] = result.ranks[rows]


@dataclass
class Part:
    """Rows of one request that score its prompt: output rows [first, first + count) from position `start`."""

    request: Request
    req_id: str
    start: int
    rows: np.ndarray
    last: bool


@dataclass
class Plan:
    """A step and how to read its result. S requests, R output rows."""

    step: Optional[ingot.Step]  # None: it could not be built
    req_ids: list[str]  # [S]
    sampled: np.ndarray  # indices into req_ids of those that draw a token; with a draft, as many times as it has rows
    output_rows: np.ndarray  # their rows in the result
    rows: np.ndarray  # their rows in the arrays
    owners: np.ndarray  # who had those rows when the step was built
    positions: np.ndarray  # where their tokens go
    logprobs: int = -1  # most alternatives that one of them wants; -1: none wants any
    structured: bool = False
    grammar: object = None  # vLLM's bitmask, where its own sampler applies it
    parts: list[Part] = field(default_factory=list)
    guessed: Optional[np.ndarray] = None  # [R] what the next row of the same draft has; -1: none. None: there are no drafts
    mask_lines: dict[str, int] = field(default_factory=dict)  # lines of vLLM's bitmask, where a request has not just one
    ticket: Optional[int] = None
    error: Optional[str] = None

    def accepted(self, tokens: np.ndarray) -> np.ndarray:
        """[R] which rows count, given what they drew: those of a draft up to the first that drew something else."""
        counts = np.ones(len(tokens), bool)
        for r in range(1, len(tokens)):
            if self.guessed[r - 1] >= 0:
                counts[r] = counts[r - 1] and tokens[r - 1] == self.guessed[r - 1]
        return counts

    def restricted(self, to: np.ndarray) -> "Plan":
        """The same with only some of its output rows."""
        names = ("sampled", "output_rows", "rows", "owners", "positions")
        return replace(self, **{name: getattr(self, name)[to] for name in names})

    @classmethod
    def failed(cls, req_ids: list[str], error: str) -> "Plan":
        return cls(None, req_ids, *[NOTHING] * 5, error=error)


def convert_sampling(params, seed: int) -> ingot.StepSampling:
    """vLLM's SamplingParams, every parameter of it that a row's token depends on."""
    greedy = params.temperature < GREEDY_BELOW
    stop = sorted(params.all_stop_token_ids) if params.min_tokens else []
    return ingot.StepSampling(
        temperature=0.0 if greedy else params.temperature,
        top_k=max(params.top_k, 0),
        top_p=params.top_p,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        seed=(seed if params.seed is None else params.seed) % 2**64,
        min_tokens=params.min_tokens,
        stop_token_ids=stop,
        logit_bias=[(int(t), float(b)) for t, b in (params.logit_bias or {}).items()],
        allowed_token_ids=list(params.allowed_token_ids or []),
        bad_words=[list(word) for word in params.bad_words_token_ids or []],
    )


def needs_history(params) -> bool:
    return bool(
        params.presence_penalty
        or params.frequency_penalty
        or params.repetition_penalty != 1.0
        or params.min_tokens
        or params.bad_words_token_ids
    )


class StepBuilder:
    """Follows vLLM's scheduler and builds its steps. apply() may be called from another thread."""

    def __init__(self, limits: ingot.EngineLimits, seed: int = 0, logits: bool = False, top_logits: int = 0):
        """`logits`: rows of logits are asked for instead of tokens; with `top_logits` only the best of them."""
        rows = limits.max_seqs
        self.logits, self.top_logits = logits, top_logits
        self.limits = limits
        self.block_size = limits.block_size
        self.requests: dict[str, Request] = {}
        self.seeds = np.random.default_rng(seed)
        self.tokens = np.zeros((rows, limits.max_model_len + 1), np.int32)
        self.known = np.zeros(rows, np.int32)  # tokens of the row the host knows
        self.table = np.full((rows, -(-limits.max_model_len // limits.block_size)), -1, np.int32)
        self.num_blocks = np.zeros(rows, np.int32)
        self.logprobs = np.full(rows, -1, np.int32)
        self.slots = np.full(rows, -1, np.int32)  # sampler slot: the row itself where a history is needed
        self.last_output = np.full(rows, -1, np.int32)  # output row in the step submitted last; -1: none
        self.owner = np.zeros(rows, np.int64)  # changes whenever a row changes hands
        self.next_owner = 1
        self.free = list(range(rows - 1, -1, -1))
        self.lock = threading.Lock()
        # What most steps ask for, ready to be cut to length.
        most = limits.max_sample_rows
        self.token_kind, self.zeros = np.full(most, ingot.OUTPUT_TOKEN, np.uint8), np.zeros(most, np.int32)
        self.count_up, self.nothing = np.arange(most, dtype=np.int32), np.full(most, -1, np.int32)

    # -- following the scheduler ----------------------------------------------------------------------------------

    def update(self, output) -> None:
        """Takes in what the scheduler decided: who is gone, who is new, who got blocks."""
        with self.lock:
            for req_id in output.finished_req_ids:
                if (request := self.requests.pop(req_id, None)) is not None:
                    self._release(request)
            for req_id in output.preempted_req_ids or ():
                if (request := self.requests.get(req_id)) is not None:
                    self._release(request)
            for new in output.scheduled_new_reqs:
                self._add(new)
            self._continue(output.scheduled_cached_reqs)

    def _add(self, new) -> None:
        params = new.sampling_params
        if (old := self.requests.pop(new.req_id, None)) is not None:
            self._release(old)
        request = Request(
            params,
            convert_sampling(params, int(self.seeds.integers(2**63))),
            len(new.prompt_token_ids),
            structured=params.structured_outputs is not None,
            needs_history=needs_history(params),
        )
        if params.prompt_logprobs is not None and request.num_prompt > 1:
            request.prompt_logprobs = params.prompt_logprobs
            request.prompt_scores = PromptScores.empty(request.num_prompt, request.prompt_logprobs)
        self.requests[new.req_id] = request
        tokens = getattr(new, "prefill_token_ids", None) or new.prompt_token_ids
        self._take_row(request, tokens, new.block_ids[0], new.num_computed_tokens)

    def _continue(self, cached) -> None:
        for i, req_id in enumerate(cached.req_ids):
            request, blocks = self.requests[req_id], cached.new_block_ids[i]
            if req_id in cached.resumed_req_ids:
                tokens = cached.all_token_ids.get(req_id)
                if tokens is None:
                    tokens = self.tokens[request.row, : self.known[request.row]].copy()
                self._release(request)
                self._take_row(request, tokens, blocks[0], cached.num_computed_tokens[i])
                continue
            if blocks is not None and blocks[0]:
                row, ids = request.row, blocks[0]
                used = self.num_blocks[row]
                self.table[row, used : used + len(ids)] = ids
                self.num_blocks[row] = used + len(ids)
            request.computed = cached.num_computed_tokens[i]

    def _take_row(self, request: Request, tokens, blocks, computed: int) -> None:
        row = request.row = self.free.pop()
        request.computed, request.history_ready = computed, False
        self.owner[row] = self.next_owner
        self.next_owner += 1
        self.tokens[row, : len(tokens)] = tokens
        self.known[row] = len(tokens)
        self.table[row] = -1
        self.table[row, : len(blocks)] = blocks
        self.num_blocks[row] = len(blocks)
        self.logprobs[row] = -1 if request.params.logprobs is None else request.params.logprobs
        self.slots[row] = row if request.needs_history and not self.logits else -1
        self.last_output[row] = -1

    def _release(self, request: Request) -> None:
        if request.row >= 0:
            self.owner[request.row] = 0
            self.free.append(request.row)
            request.row = -1

    # -- building a step ------------------------------------------------------------------------------------------

    def build(self, output) -> Plan:
        """The step of a SchedulerOutput that update() has taken in. Raises ingot.Error when it needs tokens of a step that
        failed."""
        with self.lock:
            asked = output.scheduled_spec_decode_tokens or {}
            drafts = self._take_drafts(output.num_scheduled_tokens, asked)
            scheduled = {
                req_id: count - len(asked.get(req_id, ())) + len(drafts.get(req_id, ()))
                for req_id, count in output.num_scheduled_tokens.items()
            }
            req_ids = sorted(scheduled, key=lambda req_id: scheduled[req_id] > 1)  # decode sequences first
            requests = [self.requests[req_id] for req_id in req_ids]
            counts = np.array([scheduled[req_id] for req_id in req_ids], np.int32)
            computed = np.array([request.computed for request in requests], np.int32)
            plan = self._build(req_ids, requests, counts, computed, drafts)
            plan.mask_lines = {req_id: 1 + len(tokens) for req_id, tokens in asked.items()}
            zero = getattr(output, "new_block_ids_to_zero", None)
            if zero:
                plan.step.blocks_to_zero = np.unique(np.array(zero, np.int32))
            copies = getattr(output, "kv_cache_block_copies", None)
            if copies:
                plan.step.set_block_copies([(int(copy[0]), int(copy[1])) for copy in copies])
            return plan

    def _take_drafts(self, scheduled, asked) -> dict:
        """The drafts to verify, without vLLM's padding (-1), as far as the step has output rows for them."""
        room, drafts = self.limits.max_sample_rows - len(scheduled), {}
        if any(self.requests[req_id].prompt_logprobs >= 0 for req_id in scheduled):
            room = 0  # prompts that are scored may want them all
        for req_id, tokens in asked.items():
            count = tokens.index(-1) if -1 in tokens else len(tokens)
            if count := min(count, room):
                drafts[req_id] = list(tokens[:count])
                room -= count
        return drafts

    def build_scores(self, output) -> list[Plan]:
        """Steps to run before build()'s: a prompt whose scores do not fit in one step is scored in several."""
        plans = []
        with self.lock:
            for req_id, count in output.num_scheduled_tokens.items():
                request = self.requests[req_id]
                if request.prompt_logprobs < 0:
                    continue
                most = max(1, self.limits.max_sample_rows - len(output.num_scheduled_tokens))
                while count > most:
                    part = np.array([most], np.int32)
                    plans.append(self._build([req_id], [request], part, np.array([request.computed], np.int32)))
                    request.computed += most
                    output.num_scheduled_tokens[req_id] = count = count - most
        return plans

    def _build(self, req_ids, requests, counts: np.ndarray, computed: np.ndarray, drafts=None) -> Plan:
        rows = np.array([request.row for request in requests], np.int32)
        step, known = ingot.Step(), self.known
        if drafts:
            known = known.copy()
            for req_id, tokens in drafts.items():
                row = self.requests[req_id].row
                self.tokens[row, known[row] : known[row] + len(tokens)] = tokens
                known[row] += len(tokens)
        sampled, ask_rows, positions = step.gather(
            self.tokens, self.table, known, self.last_output, rows, counts, computed, self.block_size
        )
        guessed = None
        if drafts:
            lengths = np.array([len(drafts.get(req_id, ())) for req_id in req_ids], np.int32)
            rest = lengths[sampled]  # a row each for the tokens of a draft, in front of the last
            at = np.repeat(np.arange(len(sampled)), rest + 1)
            behind = rest[at] - (np.arange(len(at)) - (np.cumsum(rest + 1) - rest - 1)[at])
            sampled, ask_rows, positions = (a.astype(np.int32) for a in (sampled[at], ask_rows[at] - behind, positions[at] - behind))
            guessed = np.where(behind > 0, self.tokens[rows[sampled], positions], -1)
        plan = self._ask(step, req_ids, requests, rows, sampled, ask_rows, positions)
        plan.guessed = guessed
        for i in plan.sampled.tolist():
            if requests[i].needs_history:
                self._write_history(step, requests[i])
        return plan

    def _ask(self, step, req_ids, requests, rows, sampled, ask_rows, positions) -> Plan:
        """Says which rows produce what, and remembers where it will be found."""
        size = len(sampled)
        chosen = rows[sampled]
        owners, slots, logprobs = self.owner[chosen], self.slots[chosen], self.logprobs[chosen]
        top = int(logprobs.max(initial=-1))
        kinds, tops, index, targets = self.token_kind[:size], self.zeros[:size], self.count_up[:size], self.nothing[:size]
        if self.logits:
            kinds = np.full(size, ingot.OUTPUT_TOP_LOGITS if self.top_logits else ingot.OUTPUT_FULL_LOGITS, np.uint8)
            tops, index = np.full(size, self.top_logits, np.int32), targets
        elif top >= 0:
            kinds = np.where(logprobs >= 0, ingot.OUTPUT_LOGPROBS, ingot.OUTPUT_TOKEN).astype(np.uint8)
            tops = np.maximum(logprobs, 0)
        samplings = [requests[i].sampling for i in sampled.tolist()]
        structured = any(requests[i].structured for i in sampled.tolist())
        if not any(request.prompt_logprobs >= 0 for request in requests):
            step.set_samples(ask_rows, samplings, index, slots, kinds, tops, targets)
            found = self.count_up[:size]
            return Plan(step, req_ids, sampled, found, chosen, owners, positions, top, structured=structured)

        starts, lengths = step.query_start_loc, step.seq_lens
        computed = lengths - np.diff(starts)
        scoring = []  # (request index, first row, position, count)
        for i, request in enumerate(requests):
            if request.prompt_logprobs >= 0 and not request.prompt_scores.done:
                count = min(int(lengths[i]), request.num_prompt - 1) - int(computed[i])
                if count > 0:
                    scoring.append((i, int(starts[i]), int(computed[i]), count))
        order = None
        if scoring:
            groups = [np.arange(first, first + count, dtype=np.int32) for _, first, _, count in scoring]
            scored = sum(len(group) for group in groups)
            wanted = [self.tokens[rows[i], at + 1 : at + 1 + count] for i, _, at, count in scoring]
            alternatives = [np.full(count, requests[i].prompt_logprobs, np.int32) for i, _, _, count in scoring]
            ask_rows = np.concatenate([ask_rows, *groups])
            order = np.argsort(ask_rows, kind="stable").astype(np.int32)
            kinds = np.concatenate([kinds, np.full(scored, ingot.OUTPUT_SCORE, np.uint8)])[order]
            tops = np.concatenate([tops, *alternatives])[order]
            targets = np.concatenate([targets, *wanted])[order]
            slots = np.concatenate([slots, np.full(scored, -1, np.int32)])[order]
            index = np.concatenate([index, np.full(scored, -1, np.int32)])[order]
            ask_rows = ask_rows[order]
        step.set_samples(ask_rows, samplings, index, slots, kinds, tops, targets)

        found = self.count_up[:size]
        parts = []
        if scoring:
            place = np.empty(len(order), np.int32)
            place[order] = np.arange(len(order), dtype=np.int32)
            found, at = place[: len(sampled)], len(sampled)
            for i, _, start, count in scoring:
                request = requests[i]
                last = start + count == request.num_prompt - 1
                parts.append(Part(request, req_ids[i], start, place[at : at + count], last))
                at += count
        return Plan(step, req_ids, sampled, found, chosen, owners, positions, top, structured=structured, parts=parts)

    def _write_history(self, step, request: Request) -> None:
        if not request.history_ready and self.slots[request.row] >= 0:
            tokens = self.tokens[request.row, : self.known[request.row]]
            step.add_sampler_reset(request.row, tokens[: request.num_prompt], tokens[request.num_prompt :])
            request.history_ready = True

    def set_grammar(self, plan: Plan, grammar) -> None:
        """vLLM's bitmask, a line for each token that a structured request may draw, spread over the step's output rows; others may draw anything."""
        words = -(-self.limits.vocab // 32)
        mask = np.full((len(plan.step.sample_rows), words), 0xFFFFFFFF, np.uint32)
        where: dict[str, list[int]] = {}
        for i, row in zip(plan.sampled.tolist(), plan.output_rows.tolist()):
            where.setdefault(plan.req_ids[i], []).append(row)
        bits = np.ascontiguousarray(grammar.grammar_bitmask).view(np.uint32)
        width = min(words, bits.shape[1])
        line = 0
        for req_id in grammar.structured_output_request_ids:
            for ahead, row in enumerate(where.get(req_id, ())):
                mask[row, :width] = bits[line + ahead, :width]
                mask[row, width:] = 0
            line += plan.mask_lines.get(req_id, 1)
        plan.step.grammar_mask = mask

    # -- after the step -------------------------------------------------------------------------------------------

    def submitted(self, plan: Plan) -> None:
        """The step is the engine's latest: the next one may name its rows."""
        with self.lock:
            self.last_output.fill(-1)
            held = self.owner[plan.rows] == plan.owners
            self.last_output[plan.rows[held]] = plan.output_rows[held]

    def known_tokens(self, plan: Plan) -> list[np.ndarray]:
        """What the requests that draw a token have so far."""
        with self.lock:
            return [self.tokens[row, :end].copy() for row, end in zip(plan.rows.tolist(), plan.positions.tolist())]

    def apply(self, plan: Plan, result, tokens: np.ndarray) -> None:
        """Takes in the tokens that were drawn, for requests that still hold their row."""
        with self.lock:
            ingot.keep(self.tokens, self.known, self.owner, plan.rows, plan.owners, plan.positions, tokens)
            for part in plan.parts:
                part.request.prompt_scores.store(part.start, result, part.rows)
                part.request.prompt_scores.done |= part.last
