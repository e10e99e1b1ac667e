"""Where faults are made, what is left out and why, and the draw."""

import dataclasses
import fnmatch
import hashlib
import re
import subprocess

import mutant_kinds
import mutant_source

# name, files, share of the draw. A file belongs to the last row that fits it.
PLACES = [
    ("core", ["src/core/*.cc", "src/core/*.h"], 5),
    ("formats", ["src/formats/*.cc", "src/formats/*.h"], 6),
    ("tokenizer", ["src/text/*.cc", "src/text/*.h"], 6),
    ("templates", ["src/text/jinja/*.cc", "src/text/jinja/*.h"], 5),
    ("grammar", ["src/grammar/*.cc", "src/grammar/*.h"], 6),
    ("model", ["src/model/*.cc", "src/model/*.h"], 6),
    ("engine", ["src/engine/*.cc", "src/engine/*.h", "src/step/*.cc", "src/step/*.h", "include/ingot/*.h"], 8),
    ("cpu", ["src/backend/cpu/*.cc", "src/backend/cpu/*.h", "src/backend/*.cc"], 7),
    ("metal host", ["src/backend/metal/*.cc", "src/backend/metal/*.h", "src/backend/metal/linear/*.cc", "src/backend/metal/linear/*.h"], 6),
    ("metal kernels", ["src/backend/metal/kernels/*"], 9),
    ("softmetal", ["softmetal/compiler/*.cc", "softmetal/mtl/*", "softmetal/runtime/*", "softmetal/shim/*"], 6),
    ("orchestrator", ["src/orchestrator/*.cc", "src/orchestrator/*.h"], 9),
    ("server", ["src/server/*.cc", "src/server/*.h"], 6),
    ("openai", [f"src/server/{api}/*.{kind}" for api in ("openai", "responses", "anthropic") for kind in ("cc", "h")], 5),
    ("hub", ["src/hub/*.cc", "src/hub/*.h"], 5),
    ("cli", ["src/cli/*.cc", "src/cli/*.h"], 4),
    ("python module", ["python/src/*.cc", "python/src/*.h", "python/ingot/*.py"], 4),
    ("plugin", ["python/vllm_apple/*.py"], 4),
]

# Kinds that few places have: drawn there before the common ones, or they would hardly ever be. And kinds that a place is about:
# drawn that many times where others are drawn once.
RARE = {"dropped barrier", "lost wakeup"}
OFTEN = {("metal kernels", "dropped barrier"): 3, ("metal host", "dropped barrier"): 2, ("engine", "skipped check"): 2}

# What is no fault, or none that this machine's suite could see: files, a pattern of the line (or `in NAME` for a function), why.
EXCLUDED = [
    # Files.
    ("*cuda*", "", "needs an NVIDIA GPU to run"),
    ("softmetal/runtime/library_file.cc", "", "finds NVIDIA's libraries"),
    ("*neon*", "", "needs an ARM processor"),
    ("*avx512*", "", "needs a processor that not every machine has"),
    ("src/backend/cpu/isa.cc", "", "chooses among paths that compute the same, by what the processor has"),
    ("src/core/bandwidth.*", "", "measures memory for a table of ingot bench"),
    ("src/cli/bench.cc", "", "measures; its figures have no right value"),
    ("src/cli/traffic.*", "", "measures"),
    ("src/cli/plot.*", "", "draws the table of ingot bench"),
    ("src/backend/metal/profile.*", "", "times kernels for a person to read"),
    ("src/backend/metal/host_hooks_*", "", "passes calls on, and counts bytes for a person to read"),
    ("src/backend/metal/linear/plan.*", "", "chooses how a product is cut; every cut gives the same bits, some sooner"),
    ("src/backend/metal/attention.*", r"tried_cut|kFewSpans|kManyGroups|kWholeKeys", "chooses how attention is cut; every cut gives the same bits"),
    ("softmetal/shim/softmetal_lint.h", "", "declarations for the lint: what is wrong there does not compile"),
    ("softmetal/shim/pp/*", "", "empty stand-ins for headers"),
    ("src/server/asio.cc", "", "instantiates a library"),
    ("python/ingot/_ingot*", "", "generated"),
    # Lines of any file.
    ("*", r"\b(?:static_)?assert\(", "a check of the programmer's, not of what a user gives"),
    ("*", r"\breserve\(|shrink_to_fit|prefetch|madvise|posix_fadvise|\bhint\b|pause_cpu|yield\(\)", "speed or memory, never a result"),
    ("*", r"\.log\(|->log\(|\blog_\(|logger\.|fmt::print\(stderr|std::cerr|\bwarn\w*\(", "text for a log"),
    ("*", r"add_option|add_flag|->description|->group\(|->check\(", "help and set-up of a command line"),
    ("*", r"(?i)spin|[a-z_]*_us\b|elapsed|steady_clock|\bstopwatch|time_since_epoch|::now\(\)",
     "a clock's reading: no test can know it"),
    ("*", r"^\s*(?:using|typedef|friend|extern|namespace)\b", "a declaration"),
    ("*", r"#pragma|\bunroll\b|alignas|alignof|hardware_concurrency", "advice to the compiler or the machine"),
    ("*", r"\bhash(?:er)?\b.*(?:\^|>>|\*)|0x9e37|0xff51afd7|0xc4ceb9fe", "mixes a hash: another mix is as good"),
    ("*", r"what\(\)|\bdescribe\(|\bto_string\(.*throw", "the words of a message"),
    ("*", r"\bprofil|\bcapture_", "measures for a person to read"),
    ("*", r"MAP_FAILED|bad_alloc|EINTR|strerror", "the system refuses memory or is interrupted: no test can make it"),
    ("*", r"ErrorKind::internal", "a check of the programmer's, not of what a user gives"),
    ("*", r"\bk(?:Max|Most|Reserve|Route|Limit|Few|Longest|Shortest)\w*|\bk\w*(?:Seconds|Timeout|Attempts)\b|\bmax_depth = ",
     "a limit chosen with room to spare: one more or less is as good"),
    ("*", r"erase\(std::unique", "duplicates cost time where they are searched, nothing else"),
    ("*", r"capacity\(\)|CURLOPT_BUFFERSIZE|kStepBytes|kHuge|kPatternBytes|> buffer_;",
     "how much memory is kept or moved at once: speed only"),
    ("*", r"kWideMatrices|matrix\w*_wide|begin_copy|softmetal_permute", "runs on NVIDIA GPUs only"),
    ("*", r"(?:buffer|chunk)\w*[({]\d+ << \d+", "the size of a buffer: speed only"),
    ("*", r"\b(?:dirty|\w*_changed) = false", "begins as changed: costs one more look"),
    ("*", r"operator(?:==|<|!=|<=>)", "an operator that templates may need and nobody calls"),
    # Lines of one file.
    ("src/orchestrator/*", "in check check_integrity", "compares the tables for the tests"),
    ("src/model/decoder.cc", r"\w+_loads", "counts bytes for a table of ingot bench"),
    ("src/engine/self_test.*", r"constexpr|allowed = ", "the sizes and the tolerance of a probe"),
    ("src/step/builder.cc", r"= [01];", "sets to zero what was made anew just before"),
    ("src/engine/devices.cc", r"2 \* bf16 > all", "half of each: either will do"),
    ("src/model/dummy.cc", r"\bword\b|\bsum\b", "dummy weights: any numbers are as good"),
    ("src/backend/cpu/device.cc", r"= allocate\(", "asks for large pages or not: speed only"),
    ("src/backend/metal/gpu.cc", r"!gpu\.\w+\)", "a Mac without a GPU or a queue"),
    ("src/server/request_parser.h", r"(?:head|body)_bytes =", "the connection always gives its own"),
    ("src/orchestrator/live_generation.h", r"unpublished_", "publishes nothing, once"),
    ("*", r"\bnext_(?:\w+_)? = |\bid_? = [01];", "a number that only tells things apart"),
    ("*", r"localizedDescription|utf8String", "the words of a message"),
    ("src/cli/perplexity.cc", r"room <= 0", "the line after it skips what is left without rows"),
    ("src/core/printable.h", "", "cuts what a message quotes"),
    ("src/formats/mapped_file.cc", r"std::exchange\(other", "unmapping nothing does nothing"),
    ("src/orchestrator/stop_text.cc", r"stop\.size\(\) > found_\.size\(\)", "as long and in the same place: the same text"),
    ("src/cli/serve.cc", r"http\.url\(\)", "words on the terminal"),
    ("src/step/stage.cc", r"offset > memory_", "the end of the buffer, with nothing to put there"),
    ("src/backend/cpu/device.cc", r"values\.empty\(\)", "the weight plan has refused it before"),
    ("src/backend/metal/attention.cc", r"kManyGroups|kFewSpans", "chooses how decode attention is cut: every cut gives the same bits"),
    ("src/backend/metal/kernels/attention_span.h", r"tile \+ i [<>]", "wide matrices are those of NVIDIA's GPUs: the tests that run there see it"),
    ("softmetal/runtime/poison.h", r"kPoison", "a pattern to be recognised: another is as good"),
    ("python/vllm_apple/*", r"GREEDY_BELOW", "a temperature of exactly that"),
    ("python/src/*", r"lock_guard", "a sanitizer cannot be loaded into Python: nothing could show the race"),
    ("src/backend/metal/linear/linear.cc", r"family|share", "chooses how many rows go together: every choice gives the same bits"),
    ("src/engine/loader.cc", r"run\(tokens", "rehearses steps so that kernels are compiled before the first"),
    ("src/backend/metal/kernels/*", r"constexpr uint k\w*Stride", "padding of threadgroup memory: speed only"),
    ("src/model/dummy.cc", r"munmap", "gives back memory when the system has none"),
    ("src/cli/conversation.cc", r"unlink", "clears up after a full disk"),
    ("src/server/http_error.cc", r"case 429", "a status that the server never sends"),
    ("src/server/reply_head.cc", r"case \d+: return", "the words beside a status, which nobody reads"),
    ("src/core/threads.cc", r"kMaxQueued = |memory_order_relaxed\) \+ 1;",
     "how far posts may run ahead; another limit waits sooner or later"),
    ("src/backend/cpu/sampling.cc", r"^  worker\.sync\(\);", "the end of a step is a barrier too"),
    ("src/backend/cpu/experts.cc", r"fill_n\(starts", "the last start is set once more at the end"),
    ("src/backend/metal/attention.cc", r"tile_operations|tiles_at_once", "how long one dispatch takes; the tiles are the same"),
    ("src/backend/metal/device.cc", r"(?:commands_|pool_)\.reset\(\)", "freed when the next encoding begins"),
    ("src/backend/metal/device.cc", r"packers_\.reset\(\)", "ends threads that have nothing to do any more"),
    ("src/backend/metal/linear/experts.cc", r"context\.(?:activations|words)\(", "the length of a view: Metal is told where it begins"),
    ("src/model/quantized.cc", r"row < rows", "a step of no rows converts nothing"),
    ("src/core/random.*", r">>|\^", "mixes random bits: another mix is as good"),
    ("src/core/threads.h", r"chunk|grain", "how work is shared out, not what is computed"),
    ("src/orchestrator/block_hash.cc", r"\*|\^|>>|rotl", "mixes a hash: another mix is as good"),
    ("src/orchestrator/pacer.*", r"constexpr|\* 0\.|kAlpha|decay", "a heuristic's number"),
    ("src/orchestrator/stats.*", r"window|smooth", "smooths figures for a person"),
    ("src/backend/cpu/memory.cc", r"huge|kAlign|mapped", "asks for large pages: speed only"),
    ("src/text/bpe.cc", r"cache|kSmall|heap_", "keeps what was computed before, or chooses the loop for short words: speed only"),
    ("src/text/tokenizer.cc", r"scratch|spare|pool", "keeps scratch memory for the next call: speed only"),
    ("src/server/http_server.h", r"io_threads|worker_threads", "how many threads serve: speed only"),
    ("softmetal/runtime/options.cc", r"threads", "how many threads run kernels: speed only"),
]


@dataclasses.dataclass(frozen=True)
class Mutation:
    place: str
    kind: str
    path: str
    line: int  # from 1
    before: str
    after: str
    text: str  # the whole changed line

    @property
    def identity(self):
        """Of the fault itself: a line that only moved keeps it."""
        return digest(self.kind, self.path, self.before, self.text)


def digest(*words):
    return hashlib.sha256("\0".join(str(w) for w in words).encode()).hexdigest()[:16]


def tracked_files(root):
    out = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True).stdout.decode()
    return sorted(name for name in out.split("\0") if name and (root / name).is_file())


def place_of(path):
    """The last place that fits: folders inside of others come later in the table."""
    if path.endswith((".txt", ".md", ".cmake", ".in", ".sh", ".typed")):
        return None
    found = [p for p in PLACES if any(fnmatch.fnmatch(path, glob) for glob in p[1])]
    return found[-1][0] if found else None


def exclusion(source, index):
    """Why a line is left out, or None."""
    for glob, pattern, why in EXCLUDED:
        if not fnmatch.fnmatch(source.path, glob):
            continue
        if pattern.startswith("in "):
            if source.where[index] in pattern[3:].split():
                return why
        elif not pattern or re.search(pattern, source.code[index]):
            return why
    return None


def _message_from(source, index):
    """Where in a line the words of an error begin: from the call that throws to the end of its statement; or the line's end."""
    first = index
    while first > 0 and source.code[first - 1].strip() and source.code[first - 1].rstrip()[-1] not in ";{}:":
        first -= 1
    for row in range(first, index + 1):
        said = re.search(mutant_kinds.RAISES, source.code[row])
        if said:
            return said.start() if row == index else 0
    return len(source.code[index])


def mutations_of(source, place):
    """Every fault that could be made in a file."""
    for index, code in enumerate(source.code):
        if len(code.strip()) < 4 or exclusion(source, index):
            continue
        view = mutant_kinds.View(source, index)
        real = source.lines[index]
        message = _message_from(source, index)
        for kind, find in mutant_kinds.KINDS.items():
            for edit in find(view):
                text = real[: edit.start] + edit.text + real[edit.end :]
                checks = kind == "skipped check"
                if checks and "ErrorKind::internal" in view.near(1):
                    continue
                if text.strip() != real.strip() and edit.start < message:
                    yield Mutation(place, kind, source.path, index + 1, real.strip(), text.strip(), text)


def candidates(root):
    """By place: all faults that could be made there."""
    found = {place[0]: [] for place in PLACES}
    for path in tracked_files(root):
        place = place_of(path)
        if place:
            found[place] += mutations_of(mutant_source.read(root, path), place)
    return found


class Queue:
    """The faults of one place, in the order they are drawn."""

    def __init__(self, name, pool, seed):
        self.name = name
        self.by_kind = {}
        # By a hash, not by position: a change elsewhere in the tree leaves the order as it was.
        for mutation in sorted(pool, key=lambda m: digest(seed, m.identity, m.line)):
            self.by_kind.setdefault(mutation.kind, []).append(mutation)
        self.files, self.kinds = {}, {}
        self.order = sorted(self.by_kind, key=lambda kind: digest(seed, name, kind))

    def take(self, totals):
        """The next one: of the kind that was drawn least, from the file that was drawn least."""
        kinds = [kind for kind in self.order if self.by_kind[kind]]
        if not kinds:
            return None
        kind = min(kinds, key=lambda k: (
            self.kinds.get(k, 0) // OFTEN.get((self.name, k), 1), totals.get(k, 0) - 3 * (k in RARE or (self.name, k) in OFTEN)))
        mutation = min(self.by_kind[kind], key=lambda m: self.files.get(m.path, 0))
        self.drawn(mutation, totals)
        return mutation

    def drawn(self, mutation, totals):
        kind = mutation.kind
        # One fault a line is enough.
        for kind_pool in self.by_kind.values():
            kind_pool[:] = [m for m in kind_pool if (m.path, m.line) != (mutation.path, mutation.line)]
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.files[mutation.path] = self.files.get(mutation.path, 0) + 1
        totals[kind] = totals.get(kind, 0) + 1


class Draw:
    """`count` faults: of those kept from an earlier draw the ones whose line is still there, the others by a seed."""

    def __init__(self, root, seed, count, kept=()):
        self.pool = candidates(root)
        self.totals = {}
        self.queues = {name: Queue(name, self.pool[name], seed) for name, _, _ in PLACES}
        self.mutations = []
        shares = self._shares(count)
        known = {m.identity: m for pool in self.pool.values() for m in pool}
        for mutation in (known[identity] for identity in kept if identity in known):
            if shares[mutation.place] > 0:
                shares[mutation.place] -= 1
                self.queues[mutation.place].drawn(mutation, self.totals)
                self.mutations.append(mutation)
        for turn in range(max(shares.values())):  # in turns, so that no place has first choice of the kinds
            for name, share in shares.items():
                mutation = self.queues[name].take(self.totals) if turn < share else None
                if mutation:
                    self.mutations.append(mutation)
        self.mutations.sort(key=lambda m: (list(self.queues).index(m.place), m.path, m.line))

    @staticmethod
    def _shares(count):
        total = sum(share for _, _, share in PLACES)
        shares = {name: max(1, count * share // total) for name, _, share in PLACES}
        by_size = sorted(PLACES, key=lambda p: -p[2])
        for i in range(max(0, count - sum(shares.values()))):
            shares[by_size[i % len(by_size)][0]] += 1
        return shares

    def others(self, mutation):
        """What stands in for one that does not compile, in order: in the same place, first of the same kind."""
        drawn = {m.identity for m in self.mutations}
        pool = [m for m in self.pool[mutation.place] if m.identity not in drawn]
        return sorted(pool, key=lambda m: (m.kind != mutation.kind, digest(mutation.identity, m.identity, m.line)))
