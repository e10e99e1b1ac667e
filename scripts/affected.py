#!/usr/bin/env python3
"""Which tests cover a file: prints the names of the ctest entries, the nearest first.

usage: affected.py [--targets] BUILD_FOLDER PATH...
       affected.py --of BUILD_FOLDER TEST...      what ninja has to build for these tests
"""

import pathlib
import re
import sys

# The beginning of a path -> patterns of ctest names, nearest and cheapest first. The first row that fits counts.
TABLE = [
    # The kernels: each file's own subject, then a whole model.
    ("src/backend/metal/kernels/attention", ["backend_attention", "backend_invariance", "metal_device_kernels", "engine_contract", "engine_metal"]),
    ("src/backend/metal/kernels/sampl", ["backend_sampling", "metal_device_kernels", "engine_contract", "engine_metal"]),
    ("src/backend/metal/kernels/linear", ["backend_linear", "backend_cuts", "backend_operations", "metal_device_kernels", "softmetal_agx_current", "backend_gemm", "engine_metal_invariance", "engine_metal"]),
    ("src/backend/metal/kernels/", ["backend_operations", "backend_linear", "metal_device_kernels", "backend_attention", "backend_sampling",
                                    "engine_contract", "engine_metal"]),
    ("src/backend/metal/linear", ["backend_linear", "backend_cuts", "metal_device_host", "backend_operations", "backend_gemm", "backend_cpu", "engine_metal",
                                  "engine_cuda_compile"]),
    ("src/backend/metal/sampling", ["backend_sampling", "metal_device_host", "engine_contract", "engine_metal"]),
    ("src/backend/metal/attention", ["backend_attention", "backend_invariance", "metal_device_host", "engine_metal"]),
    ("src/backend/metal/", ["backend_operations", "metal_device_host", "engine_contract", "engine_rest", "engine_metal", "backend_", "server_metal"]),
    ("src/backend/cpu/sampling", ["backend_sampling", "backend_cpu", "backend_threads", "engine_contract", "engine_invariance", "orchestrator_"]),
    ("src/collective/", ["engine_rest", "cli_ranks"]),
    ("src/backend/", ["backend_cpu", "backend_threads", "backend_host", "backend_operations", "backend_attention", "ingot_cpu", "backend_invariance", "backend_sampling",
                      "engine_invariance", "engine_model", "engine_rest", "engine_contract"]),
    ("softmetal/agx/", ["softmetal_agx"]),
    ("softmetal/", ["softmetal_", "backend_operations", "backend_sampling", "backend_linear", "backend_gemm", "engine_cuda_compile",
                    "engine_contract", "engine_rest", "engine_metal"]),
    ("src/core/", ["core_", "formats_", "orchestrator_parts", "engine_rest", "backend_cpu", "orchestrator_llm", "memory_peak",
                   "server_openai", "cli_commands", "hub_parts"]),
    ("src/formats/", ["formats_", "model_", "engine_rest", "text_tokenizer", "engine_metal_formats", "cli_commands"]),
    ("src/text/jinja/", ["text_template", "text_", "server_openai", "cli_chat"]),
    ("src/text/calls/", ["text_dialects", "server_openai", "server_tools", "cli_commands"]),
    ("src/text/dialects/", ["text_dialects", "server_openai", "cli_commands"]),
    ("src/text/", ["text_", "orchestrator_text", "server_openai", "engine_model", "cli_commands"]),
    ("src/grammar/", ["grammar_", "orchestrator_llm", "server_structured"]),
    ("src/model/", ["model_", "engine_rest", "engine_model", "engine_contract", "cli_commands", "engine_metal", "memory_peak"]),
    ("src/step/", ["step_", "engine_contract", "orchestrator_parts", "orchestrator_llm", "engine_rest", "backend_sampling", "python_"]),
    ("src/prefix/", ["prefix_", "orchestrator_parts", "orchestrator_llm", "server_prefix"]),
    ("src/engine/", ["engine_rest", "engine_contract", "engine_invariance", "orchestrator_llm", "memory_peak", "python_", "cli_commands"]),
    ("src/orchestrator/", ["orchestrator_", "server_openai", "server_load_preempt", "server_siege", "server_load_test", "server_client", "server_structured", "python_module"]),
    ("src/server/web/", ["page_", "chat_page"]),
    ("src/server/responses/", ["server_openai", "server_apis", "server_sdist"]),
    ("src/server/anthropic/", ["server_openai", "server_apis", "server_sdist"]),
    ("src/server/openai/", ["server_openai", "server_curl", "server_client", "server_structured", "server_malformed", "server_lifecycle", "server_abuse", "server_load_test"]),
    ("src/server/", ["server_http", "server_openai", "server_curl", "server_malformed", "server_lifecycle", "server_client", "server_abuse",
                     "server_load_test", "server_many"]),
    ("src/hub/", ["hub_", "python_find_model", "cli_commands"]),
    ("src/cli/", ["cli_", "hub_pull_test", "server_lifecycle", "server_curl", "hub_"]),
    ("include/", ["engine_rest", "engine_contract", "orchestrator_", "server_openai", "cli_commands", "server_client", "python_"]),
    ("python/", ["python_"]),
    # A test's own folder.
    ("tests/core/", ["core_"]),
    ("tests/formats/", ["formats_"]),
    ("tests/text/", ["text_"]),
    ("tests/grammar/", ["grammar_"]),
    ("tests/model/", ["model_"]),
    ("tests/backend/", ["backend_"]),
    ("tests/softmetal/", ["softmetal_"]),
    ("tests/neon/", ["neon_"]),
    ("tests/step/", ["step_"]),
    ("tests/prefix/", ["prefix_"]),
    ("tests/tree/", ["tree_"]),
    ("tests/examples/", ["examples_"]),
    ("examples/", ["examples_"]),
    ("tests/engine/", ["engine_", "memory_peak"]),
    ("tests/orchestrator/", ["orchestrator_"]),
    ("tests/server/web/", ["page_", "chat_page"]),
    ("tests/server/", ["server_"]),
    ("tests/hub/", ["hub_"]),
    ("tests/cli/", ["cli_"]),
    ("tests/python/", ["python_"]),
    ("docs/settings.md", ["core_", "docs_"]),
    ("packaging/", ["cli_commands", "docs_"]),
    ("tests/docs/", ["docs_"]),
    # Words, and what the suite does not run.
    ("docs/", ["docs_"]),
    ("README.md", ["docs_"]),
    ("CONTRIBUTING.md", ["docs_"]),
    ("bench/", []),
    ("scripts/", []),
    ("tests/agents/", []),
    ("tests/replicas/", []),
    ("tests/vllm/", []),
    ("tests/fuzz/", []),
]


def _commands(build_dir):
    """Test name -> the text that CMake wrote about it. ctest itself leaves out the command of what is not built yet."""
    found = {}
    for file in sorted(pathlib.Path(build_dir).rglob("CTestTestfile.cmake")):
        for line in file.read_text().split("\n"):
            entry = re.match(r"(?:add_test|set_tests_properties)\(\[?=*\[?\"?([^\]\" ]+)", line)
            if entry:
                found[entry.group(1)] = found.get(entry.group(1), "") + line
    return found


def tests_for(paths, build_dir):
    """ctest names, nearest first: what is nearest to any of the paths comes before what is second nearest."""
    names, ranked = list(_commands(build_dir)), {}
    for path in paths:
        row = next((patterns for prefix, patterns in TABLE if path.startswith(prefix)), [])
        for rank, pattern in enumerate(row):
            for name in names:
                if re.match(pattern, name):
                    ranked[name] = min(rank, ranked.get(name, rank))
    return sorted(ranked, key=lambda name: (ranked[name], names.index(name)))


def is_covered(path):
    """Whether the table knows what covers a file; what it does not know may be covered by anything."""
    return path.endswith(".md") or any(path.startswith(prefix) for prefix, _ in TABLE)


def targets_for(tests, build_dir):
    """What ninja has to build for them: every file of the build folder that the test names."""
    commands, targets = _commands(build_dir), set()
    folder = re.escape(str(pathlib.Path(build_dir).resolve()))
    for name in tests:
        text = commands.get(name, "")
        targets |= set(re.findall(folder + r"/((?:tests|bin|fuzz|lib)/[\w.]+|src/backend/metal/ingot\.metal|src/server/web/chat\.html)(?=[\";\s])", text))
        if re.search(folder + "/python", text):
            targets |= {"ingot_python", "bin/ingot"}
        if re.search(folder + "/src/server/web", text):
            targets.add("ingot_web")
    # The command is not linked into the tests that start it.
    if any(re.match(r"cli_|hub_pull|server_\w+_test|chat_page", name) for name in tests):
        targets.add("bin/ingot")
    return sorted(targets)


def main():
    arguments = [a for a in sys.argv[1:] if a not in ("--targets", "--of")]
    if len(arguments) < 2:
        sys.exit(__doc__)
    if "--of" in sys.argv:
        return print("\n".join(targets_for(arguments[1:], arguments[0])))
    tests = tests_for(arguments[1:], arguments[0])
    print("\n".join(targets_for(tests, arguments[0]) if "--targets" in sys.argv else tests))


if __name__ == "__main__":
    main()
