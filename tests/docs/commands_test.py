"""Every command of the documents is run here and does what the text says, or is marked with what runs it, or why nothing does.

Blocks are fenced, with their language: sh and console (`$ command`, then what it prints; … stands for anything) are run line by
line, python blocks of a document as one program. Comments above a block, which readers do not see, say what is not run here:

    <!-- not run: REASON -->                   the whole block
    <!-- not run `make test`: REASON -->       lines that begin so
    <!-- tested: NAME -->                      another test does it: an entry of ctest, or a file (also with lines, as above)

Commands within the text (`ingot run -m M`) are run too; what else is named there must exist. usage: commands_test.py [DOCUMENT]...
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "hub"), str(ROOT / "tests" / "server")]

import affected  # noqa: E402
import fake_hub  # noqa: E402
import server as fixture  # noqa: E402
import tiny_model  # noqa: E402

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "packaging/README.md",
             *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md") if path.name != "mutants.md")]
LANGUAGES = {"sh", "console", "python", "cpp", "cmake", "yaml", "json", "text"}
MARK = re.compile(r"<!-- (not run|tested)(?: `([^`]+)`)?: (.+?) -->")
SERVE = re.compile(r"(?:build/bin/)?ingot serve\b")
COMMAND_S = 60
# What stands for something else within the text.
PLACEHOLDERS = {"--tool-format NAME": "--tool-format hermes", "FILE...": "FILE"}


class Block:
    def __init__(self, language, line, marks):
        self.language, self.line, self.marks, self.lines = language, line, marks, []

    def commands(self):
        """(command, the lines it prints or None, the mark that keeps it from being run or None)"""
        found, text = [], "\n".join(self.lines).replace("\\\n", " ")
        for line in text.split("\n"):
            if self.language == "console" and not line.startswith("$ "):
                found[-1][1].append(line)
            elif line.strip() and not line.lstrip().startswith("#"):
                command = line.removeprefix("$ ")
                found.append((command, [] if self.language == "console" else None, self.mark_of(command)))
        return found

    def mark_of(self, command):
        return next((mark for mark in self.marks if mark[1] is None or command.startswith(mark[1])), None)


def read_document(path):
    """Its blocks, its inline code, and what is wrong with its form."""
    blocks, spans, faults, marks, block, quiet = [], [], [], [], None, {}
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines, 1):
        if block is not None:
            if line.startswith("```"):
                block = None
            else:
                block.lines.append(line)
        elif line.startswith("```"):
            block = Block(line[3:].strip(), number, marks)
            blocks.append(block)
            marks = []
            if block.language not in LANGUAGES:
                faults.append(f"{path.name}:{number}: a block without a known language: {line}")
        elif found := MARK.findall(line):
            marks += [(kind, start or None, text) for kind, start, text in found]
        else:
            if line.startswith("    ") and lines[number - 2] == "":
                faults.append(f"{path.name}:{number}: a block must be fenced, with its language")
            spans += [(number, span) for span in re.findall(r"`([^`]+)`", line.replace("\\|", "|"))]
            if line.strip():
                quiet.update({start: (kind, text) for kind, start, text in marks if start})
                marks = []
    return blocks, spans, faults, quiet


class Reader:
    """A folder in which the commands of one document are typed. Its models are tiny: they answer nonsense, fast."""

    def __init__(self, models):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ingot-docs-"))
        self.servers, self.port = [], None
        self.tiny, gguf = models / "tiny", models / "tiny.gguf"
        self.hub = fake_hub.Hub()
        files = {path.name: path.read_bytes() for path in self.tiny.iterdir()}
        self.hub.add("Qwen/Qwen2-0.5B-Instruct", files)
        for revision in ("main", "REVISION"):
            self.hub.add("OWNER/NAME", {**files, "NAME-Q4_K_M.gguf": gguf.read_bytes()}, revision)
        self.fill(gguf)
        binary = fixture.binary().resolve()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "INGOT_")) and not name.lower().endswith("_proxy")}
        self.env |= {
            "PATH": f"{binary.parent}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(self.folder), "HF_ENDPOINT": self.hub.url,
            "INGOT_DEFAULT_MODEL": str(self.tiny), "INGOT_BINARY": str(binary),
            "PYTHONPATH": os.environ.get("PYTHONPATH", str(binary.parent.parent / "python")),
        }

    def fill(self, gguf):
        """What commands name: models, and files to read."""
        for name in ("tests", "scripts", "bench", "packaging"):
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "build").symlink_to(fixture.binary().resolve().parent.parent)
        for name in ("M", "MODEL", "FOLDER", "IN"):
            (self.folder / name).symlink_to(self.tiny)
        for name in ("model.gguf", "llama-3.2-1b-q4_0.gguf", "FILE.gguf"):
            (self.folder / name).symlink_to(gguf)
        (self.folder / "FILE").write_text('{"city": "Oslo"}')
        (self.folder / "S.json").write_text(json.dumps({"type": "object", "properties": {"city": {"type": "string"}}}))
        (self.folder / "TAG.json").write_text(json.dumps({"type": "structural_tag", "triggers": ["<t>"], "structures": [
            {"begin": "<t>", "schema": {"type": "object"}, "end": "</t>"}]}))
        (self.folder / "answer.txt").write_text('<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>')
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}}}
        (self.folder / "tools.json").write_text(json.dumps([tool]))

    def close(self):
        for process in self.servers:
            process.send_signal(signal.SIGTERM)
        for process in self.servers:
            process.wait(30)
        self.hub.close()
        shutil.rmtree(self.folder)

    def run(self, command, code=None):
        """(exit status, stdout, stderr). A server stays, and later commands reach it."""
        if code is None and SERVE.match(command) and "--help" not in command:
            return self.serve(command)
        words = [sys.executable, "-c", code] if code else ["bash", "-c", command.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")]
        try:
            done = subprocess.run(words, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            return 124, "", f"not done within {COMMAND_S} s"
        return done.returncode, done.stdout, done.stderr

    def serve(self, command):
        log = open(self.folder / f"serve{len(self.servers)}.log", "w+b")
        words = ["bash", "-c", f"exec {command.split(' #')[0]} --port 0 --threads 1"]
        process = subprocess.Popen(words, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + COMMAND_S
        while time.monotonic() < end and process.poll() is None:
            said = pathlib.Path(log.name).read_text()
            if found := fixture.LISTENING.search(said):
                self.servers.append(process)
                self.port = found.group(1)
                return 0, said, ""
            time.sleep(0.02)
        process.kill()
        return 1, "", pathlib.Path(log.name).read_text()


def prints(expected, output):
    pattern = "\\s*".join(".*?".join(re.escape(part) for part in line.split("…")) for line in expected)
    return re.fullmatch(pattern, output.strip(), re.DOTALL)


class CommandsTest(unittest.TestCase):
    documents = DOCUMENTS

    @classmethod
    def setUpClass(cls):
        cls.entries = set(affected._commands(fixture.binary().resolve().parent.parent))
        cls.targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        cls.skipped = {}
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.models = pathlib.Path(folder.name)
        tokenizer = tiny_model.make(cls.models / "tiny", max_len=4096) / "tokenizer.json"
        tokenizer.write_text(tokenizer.read_text().replace('"use_regex": false', '"use_regex": true'))  # GGUF has a name for that
        subprocess.run([fixture.binary(), "quantize", cls.models / "tiny", cls.models / "tiny.gguf", "--type", "q8_0"], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        for reason, commands in sorted(cls.skipped.items()):
            print(f"not run ({reason}): {len(commands)}\n" + "".join(f"    {command}\n" for command in commands), end="")

    def check(self, holds, fault):
        if not holds:
            self.faults.append(fault)

    def leave_out(self, mark, command, place):
        kind, _, text = mark
        if kind == "tested":
            self.check(text in self.entries or (ROOT / text).exists(), f"{place}: there is no test {text}")
            text = f"tested by {text}"
        self.skipped.setdefault(text, []).append(f"{place}: {command}")

    def check_spans(self, document, spans, quiet, reader):
        """Inline code: commands of ingot are run, all else must be there."""
        known = set()
        for number, span in spans:
            place, command = f"{document}:{number}", span.removeprefix("build/bin/")
            mark = next((mark for start, mark in quiet.items() if span.startswith(start)), None)
            if mark:
                self.leave_out((mark[0], None, mark[1]), span, place)
            elif re.match(r"ingot [a-z-]+ \S", command):
                if command in known:
                    continue
                known.add(command)
                for name, value in PLACEHOLDERS.items():
                    command = command.replace(name, value)
                status, _, error = reader.run(command)
                self.check(status == 0, f"{place}: {span}: {error[-500:]}")
            elif found := re.match(r"ingot ([a-z-]+)$", command):
                self.check(found.group(1) in self.commands, f"{place}: {span}")
            elif found := re.match(r"make ([a-z-]+)", span):
                self.check(found.group(1) in self.targets, f"{place}: {span}")
            elif found := re.match(r"ctest .*-R (\S+)", span):
                self.check(any(re.search(found.group(1), entry) for entry in self.entries), f"{place}: {span}")
            elif re.match(r"(scripts|bench|tests|src|docs|examples|python|packaging|include|cmake)/[\w./*-]+", span) and not re.search("NAME|<", span):
                self.check(list(ROOT.glob(span.split()[0].split(":")[0].rstrip("/,"))), f"{place}: there is no {span}")

    def check_blocks(self, document, blocks, reader):
        program = []
        for block in blocks:
            place = f"{document}:{block.line}"
            if block.language == "python":
                mark = block.mark_of("")
                self.leave_out(mark, block.lines[0], place) if mark else program.extend(block.lines)
            if block.language not in ("sh", "console"):
                continue
            used = [mark for _, _, mark in block.commands()]
            self.check(all(mark in used for mark in block.marks), f"{place}: a mark of nothing: {block.marks}")
            for command, expected, mark in block.commands():
                if mark:
                    self.leave_out(mark, command, place)
                    continue
                status, output, error = reader.run(command)
                self.check(status == 0, f"{place}: {command}\n{output[-500:]}{error[-1000:]}")
                if expected is not None:
                    self.check(prints(expected, output), f"{place}: {command} prints\n{output}")
        if program:
            status, output, error = reader.run(document, code="\n".join(program))
            self.check(status == 0, f"{document}: its Python\n{output}{error[-2000:]}")

    def test_documents(self):
        done = subprocess.run([fixture.binary(), "--help"], capture_output=True, text=True, check=True)
        self.commands = set(re.findall(r"^  ([a-z-]+)  ", done.stdout, re.MULTILINE))
        for document in self.documents:
            blocks, spans, self.faults, quiet = read_document(ROOT / document)
            begin = sum(os.times()[:4])
            reader = Reader(self.models)
            try:
                self.check_blocks(document, blocks, reader)
                self.check_spans(document, spans, quiet, reader)
            finally:
                reader.close()
            print(f"{document}: {sum(os.times()[:4]) - begin:.1f} s of CPU", flush=True)
            with self.subTest(document):
                self.assertEqual(self.faults, [], "\n".join(self.faults))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        CommandsTest.documents = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
