#!/usr/bin/env python3
"""Which tests cover a file: prints the names of the ctest entries, the nearest first.

usage: affected.py [--targets] BUILD_FOLDER PATH...
"""

import pathlib
import re
import sys

# The beginning of a path -> patterns of ctest names, nearest and cheapest first. The first row that fits counts.
TABLE = [
    ("src/core/", ["core_", "formats_", "step_test", "orchestrator_test", "cpu_backend", "llm_test", "memory_peak", "cli_test",
                   "server_curl"]),
    ("src/formats/", ["formats_", "model_config", "weights_test", "model_test", "quantize_", "families_", "cli_test"]),
    ("src/text/jinja/", ["template_", "text_", "openai_", "cli_test", "chat_test"]),
    ("src/text/", ["tokenizer_", "template_", "text_", "llm_text", "openai_", "cli_test", "default_model", "gemma_"]),
    ("src/model/", ["model_", "weights_", "families_", "quantize_", "packed_", "gemma_", "engine_", "default_model", "cli_test"]),
    ("src/engine/", ["step_test", "engine_", "families_", "invariance_", "memory_", "quantize_", "llm_", "cli_test", "python_module"]),
    ("src/backend/metal/", ["metal_pack", "metal_linear", "metal_gemm", "metal_", "conformance_", "sampling_", "attention_", "backend_",
                            "engine_", "families_", "quantize_", "server_metal"]),
    ("src/backend/", ["cpu_linear", "cpu_backend", "conformance_", "backend_", "sampling_", "attention_", "isa_objects", "engine_",
                      "invariance_", "families_", "quantize_", "default_model"]),
    ("softmetal/", ["softmetal_", "metal_gemm", "metal_linear", "metal_", "conformance_", "sampling_test"]),
    ("src/orchestrator/", ["orchestrator_", "llm_", "openai_llm", "server_load", "server_client", "server_lifecycle", "python_module"]),
    ("src/server/openai/", ["openai_", "server_curl", "server_client", "server_malformed", "server_lifecycle", "server_load_test"]),
    ("src/server/web/", ["page_", "chat_page"]),
    ("src/server/", ["http_", "openai_", "server_test", "server_curl", "server_malformed", "server_lifecycle", "server_client",
                     "server_load_test", "server_many"]),
    ("src/hub/", ["hub_", "python_find_model", "cli_test", "packaging_"]),
    ("src/cli/", ["packaging_", "cli_", "chat_test", "hub_", "server_lifecycle", "server_curl"]),
    ("include/ingot/step.h", ["step_test", "engine_", "llm_", "openai_", "cli_test"]),
    ("include/", ["engine_", "llm_", "orchestrator_", "openai_", "cli_test", "server_client", "python_module"]),
    ("python/", ["python_"]),
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
    """ctest names, nearest first."""
    names, wanted = list(_commands(build_dir)), []
    for path in paths:
        for pattern in next((patterns for prefix, patterns in TABLE if path.startswith(prefix)), []):
            wanted += [name for name in names if re.match(pattern, name) and name not in wanted]
    return wanted


def targets_for(tests, build_dir):
    """What ninja has to build for them: every file of the build folder that the test names."""
    commands, targets = _commands(build_dir), set()
    folder = re.escape(str(pathlib.Path(build_dir).resolve()))
    for name in tests:
        text = commands.get(name, "")
        targets |= set(re.findall(folder + r"/((?:tests|bin|fuzz|lib)/\w+|src/backend/metal/ingot\.metal)(?=[\";\s])", text))
        if re.search(folder + "/python", text):
            targets.add("ingot_python")
    # The command is not linked into the tests that start it.
    if any(re.match(r"cli_|chat_|hub_pull|server_\w+_test|openai_llm", name) for name in tests):
        targets.add("bin/ingot")
    return sorted(targets)


def main():
    arguments = [a for a in sys.argv[1:] if a != "--targets"]
    if len(arguments) < 2:
        sys.exit(__doc__)
    tests = tests_for(arguments[1:], arguments[0])
    print("\n".join(targets_for(tests, arguments[0]) if "--targets" in sys.argv else tests))


if __name__ == "__main__":
    main()
