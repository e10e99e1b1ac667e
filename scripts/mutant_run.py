"""Builds and tests one fault at a time, in a copy of the tree that is nobody's checkout."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import affected
import mutant_places

FOLDERS = {"release": "build", "asan": "build-asan", "tsan": "build-tsan"}
BUILD_SECONDS = 2400
UNBUILT = re.compile(r"\.md$|^Makefile$|^scripts/(?:mutant|affected)")  # a change there leaves every outcome as it is
VLLM_TEST = "pytest tests/vllm"
VLLM_SECONDS = 900


class Broken(Exception):
    """The tree is broken without any fault of ours."""


def presets_of(mutation):
    """The builds that may show it, in order: a race shows under ThreadSanitizer alone, a leak or a stray read under ASan."""
    metal = "metal" in mutation.path  # strict mode watches every load and store there, and needs no sanitizer
    if mutation.path.endswith(".py") or mutation.path.startswith("python/"):
        return ["release"]
    if mutation.kind == "missed lock":
        return ["tsan"]
    if mutation.kind in ("missed free", "off by one", "wrong index") and not metal:
        return ["release", "asan"]
    return ["release"]


class Workspace:
    def __init__(self, root, jobs, say):
        self.root, self.jobs, self.say = root, jobs, say
        self.base = root / "build-mutants"
        self.tree = self.base / "tree"
        self.ready, self.whole = set(), None
        self.output = self.base / "output"

    # -- the copy ---------------------------------------------------------------------------------------------------

    def sync(self):
        """Makes the copy what the checkout is. Files that are the same keep their times, so that nothing is built anew."""
        names = mutant_places.tracked_files(self.root)
        self.output.mkdir(parents=True, exist_ok=True)
        hashes = []
        for name in names:
            data, to = (self.root / name).read_bytes(), self.tree / name
            hashes.append(mutant_places.digest(name, data))
            if not to.is_file() or to.read_bytes() != data:
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.root / name, to)
                shutil.copymode(self.root / name, to)
        known = self.base / "files.json"
        for name in set(json.loads(known.read_text()) if known.is_file() else []) - set(names):
            (self.tree / name).unlink(missing_ok=True)
        known.write_text(json.dumps(names))
        return mutant_places.digest(*(h for name, h in zip(names, hashes) if not UNBUILT.search(name)))

    def put(self, mutation):
        file = self.tree / mutation.path
        self.whole = file.read_text()  # the checkout may change meanwhile
        lines = self.whole.split("\n")
        lines[mutation.line - 1] = mutation.text
        file.write_text("\n".join(lines))

    def restore(self, mutation):
        """The line as it was; nothing where there is no fault just now."""
        if self.whole is not None:
            (self.tree / mutation.path).write_text(self.whole)
        self.whole = None

    # -- building ---------------------------------------------------------------------------------------------------

    def environment(self):
        env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1",
                   GTEST_FAIL_FAST="1", UBSAN_OPTIONS="print_stacktrace=1")
        if "INGOT_DEFAULT_MODEL" not in env:
            path = subprocess.run([self.root / "scripts/fetch_model.sh", "--path"], capture_output=True, text=True)
            env["INGOT_DEFAULT_MODEL"] = path.stdout.strip()
        return env

    def build_dir(self, preset):
        return self.tree / FOLDERS[preset]

    def configure(self, preset):
        if preset in self.ready:
            return
        self.say(f"configuring {preset} in {self.build_dir(preset)}")
        done = subprocess.run(["scripts/build.sh", preset, "--configure"], cwd=self.tree, env=self.environment(),
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken(f"{preset} cannot be configured:\n{done.stdout}{done.stderr}")
        self.ready.add(preset)

    def build(self, preset, targets):
        """Whether they could be built; what ninja said is in the output folder."""
        if not targets:
            return True
        command = ["ninja", "-C", str(self.build_dir(preset)), "-j", str(self.jobs), *targets]
        try:
            with open(self.output / "build.log", "w") as log:
                return subprocess.run(command, env=self.environment(), stdout=log, stderr=subprocess.STDOUT,
                                      timeout=BUILD_SECONDS).returncode == 0
        except subprocess.TimeoutExpired:  # what is computed while compiling may never end
            return False

    def build_clean(self, preset, targets):
        if not self.build(preset, targets):
            raise Broken(f"the tree does not build as it is ({preset}); see {self.output / 'build.log'}")

    # -- tests ------------------------------------------------------------------------------------------------------

    def tests(self, preset, mutation):
        """Names of the tests that cover it, nearest first, as far as they say something in this build."""
        names = affected.tests_for([mutation.path], self.build_dir(preset))
        if preset != "release":
            labels = {t.name: t.labels for t in self.entries(preset).values()}
            keep = (lambda l: "tsan" in l) if preset == "tsan" else (lambda l: not {"metal", "softmetal", "command"} & set(l))
            names = [n for n in names if keep(labels.get(n, []))]
        if mutation.path.startswith("python/vllm_apple/"):
            names.append(VLLM_TEST)
        return names

    def entries(self, preset):
        told = subprocess.run(["ctest", "--test-dir", str(self.build_dir(preset)), "--show-only=json-v1"],
                              capture_output=True, text=True, check=True).stdout
        entries = {t["name"]: Entry.from_ctest(t) for t in json.loads(told[told.index("{"):])["tests"]}
        entries[VLLM_TEST] = self.vllm_entry()
        return entries

    def vllm_entry(self):
        """The plugin's tests, in the newest environment with vLLM that is installed; no command: there is none."""
        cache = os.environ.get("INGOT_CACHE") or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ingot")
        found = sorted(p.parent for p in pathlib.Path(cache, "vllm").glob("*/complete") if (p.parent / "bin/python").exists())
        if not found:
            return Entry(VLLM_TEST, [], {}, str(self.tree), VLLM_SECONDS)
        state = str(self.output / "vllm-state")
        env = {"PYTHONPATH": str(self.build_dir("release") / "python"), "VLLM_APPLE_USE_ENGINE": "1",
               "VLLM_METAL_STRICT_NO_MPS": "1", "VLLM_CACHE_ROOT": state, "VLLM_CONFIG_ROOT": state}
        command = [str(found[-1] / "bin/python"), "-m", "pytest", "-q", "-x", "tests/vllm"]
        return Entry(VLLM_TEST, command, env, str(self.tree), VLLM_SECONDS)

    def targets(self, preset, names):
        targets = affected.targets_for([n for n in names if n != VLLM_TEST], self.build_dir(preset))
        return sorted(set(targets) | ({"ingot_python"} if VLLM_TEST in names else set()))

    def run(self, entries, names, limits, preset):
        """Runs them in order, as many at once as there are jobs, until one fails. Returns the list of (name, Result)."""
        running = []
        try:
            return self._run(entries, list(names), limits, preset, running)
        finally:  # when one fails the others need not go on, nor when the run is stopped
            for one in running:
                one.kill()

    def _run(self, entries, waiting, limits, preset, running):
        results = []
        while waiting or running:
            used = sum(r.entry.slots(self.jobs) for r in running)
            while waiting and (not running or used + entries[waiting[0]].slots(self.jobs) <= self.jobs):
                entry = entries[waiting.pop(0)]
                running.append(Running(entry, limits.get(entry.name, entry.timeout), self.environment(), self.output, preset))
                used += entry.slots(self.jobs)
            time.sleep(0.02)
            for one in [r for r in running if r.finished()]:
                running.remove(one)
                results.append((one.entry.name, one.result))
                if one.result.outcome in ("failed", "timeout"):
                    return results
        return results


class Entry:
    """One test of ctest, with what is needed to run it: its own time limit and its output are wanted, which ctest keeps."""

    def __init__(self, name, command, env, folder, timeout, properties=None):
        self.name, self.command, self.env, self.folder, self.timeout = name, command, env, folder, timeout
        self.properties = properties or {}
        self.labels = self.properties.get("LABELS", [])

    @staticmethod
    def from_ctest(test):
        p = {x["name"]: x["value"] for x in test.get("properties", [])}
        env = dict(v.split("=", 1) for v in p.get("ENVIRONMENT", []))
        return Entry(test["name"], test.get("command", []), env, p.get("WORKING_DIRECTORY"), p.get("TIMEOUT", 600), p)

    def slots(self, jobs):
        return min(jobs, jobs if self.properties.get("RUN_SERIAL") else int(self.properties.get("PROCESSORS", 1)))

    def judge(self, code, output):
        if code == self.properties.get("SKIP_RETURN_CODE"):
            return "skipped"
        return "passed" if (code == 0) != bool(self.properties.get("WILL_FAIL")) else "failed"


class Result:
    def __init__(self, outcome, seconds, output=""):
        self.outcome, self.seconds, self.output = outcome, seconds, output

    def case(self):
        """The test case that failed, where the output names one."""
        found = re.search(r"\[  FAILED  \] ([\w./]+)|^(?:FAIL|ERROR): (\w+)|^FAILED (\S+)|(ThreadSanitizer|AddressSanitizer|LeakSanitizer)",
                          self.output, re.MULTILINE)
        return next((g for g in found.groups() if g), "") if found else ""

    def kernel_does_not_compile(self):
        return bool(re.search(r"\.(?:metal|h):\d+(?::\d+)?: (?:fatal )?error:", self.output))


class Running:
    def __init__(self, entry, limit, env, folder, preset):
        self.entry, self.limit, self.start, self.result = entry, limit, time.time(), None
        if not entry.command:
            self.result = Result("missing", 0)
            return
        self.log = tempfile.TemporaryFile(dir=folder)
        command = ["setarch", "-R", *entry.command] if preset == "tsan" and shutil.which("setarch") else entry.command
        self.process = subprocess.Popen(command, cwd=entry.folder, env={**env, **entry.env}, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def finished(self):
        if self.result:
            return True
        code, seconds = self.process.poll(), time.time() - self.start
        if code is None and seconds < self.limit:
            return False
        if code is None:
            self.kill()
        self.log.seek(0)
        text = self.log.read()[-400_000:].decode(errors="replace")
        self.result = Result("timeout" if code is None else self.entry.judge(code, text), seconds, text)
        return True

    def kill(self):
        """The test and whatever it started."""
        if self.result is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()


def compiles_python(path):
    try:
        compile(path.read_text(), str(path), "exec")
        return True
    except SyntaxError:
        return False
