#!/usr/bin/env python3
"""The own tests of the openai and anthropic packages, for the endpoints that exist here: their strict clients check every field of
an answer. They come with the packages' source archives (scripts/fetch_sdists.sh) and run against a model that says "Hello.".

A test named `with_all_params` sends whatever there is a parameter for, and nonsense in it: there a 400 that names one of them will do.
The suite runs the blocking, strict client; INGOT_SOAK=1 the others too."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import server as fixture
from tools_test import Scripted

# Package → its client, whether its base URL ends in /v1, and its test files with the tests that are run.
SUITES = {
    "openai": ("OpenAI", True, {
        "test_responses.py": r"create|retrieve|delete|cancel",
        "responses/test_input_items.py": r"list",
        "test_completions.py": r"create",
        "chat/test_completions.py": r"create",
        "test_models.py": r"retrieve|list",
    }),
    "anthropic": ("Anthropic", False, {
        "test_messages.py": r".",
        "test_models.py": r".",
    }),
}
KEPT = "resp_677efb5139a88190b512bc3fef8e535d"  # what the tests of responses ask for
# Refused here: nothing runs in the background, so there is nothing to cancel, nor a stream to go back to.
REFUSED = r"test_responses\.py::.*(cancel|retrieve_overload_2)"

CONFTEST = r'''
import inspect, json, os, re, urllib.request
import pytest, pytest_asyncio
import PACKAGE

URL = os.environ["TEST_API_BASE_URL"]

def options(param):
    return dict(base_url=URL, api_key="none", max_retries=0, _strict_response_validation=bool(param))

@pytest.fixture(scope="session")
def client(request):
    with PACKAGE.CLIENT(**options(request.param)) as client:
        yield client

@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def async_client(request):
    async with PACKAGE.AsyncCLIENT(**options(request.param)) as client:
        yield client

@pytest.fixture(autouse=True)
def kept(request):
    """The response that the tests ask for."""
    if "responses" in request.node.nodeid and not re.search("create|path_params", request.node.name):
        headers = {"Content-Type": "application/json", "X-Request-Id": "KEPT"[5:]}
        urllib.request.urlopen(urllib.request.Request(URL + "/responses", b"{}", headers)).read()

def pytest_collection_modifyitems(items):
    wanted = json.loads(os.environ["SDIST_WANTED"])
    def runs(item):
        pattern = next(p for name, p in wanted.items() if item.nodeid.startswith("tests/api_resources/" + name))
        every = os.environ["SDIST_EVERY"] == "True" and "aiohttp" not in item.name
        return re.search(pattern, item.name) and (every or "[strict" in item.name and "async_client" not in item.fixturenames)
    items[:] = [item for item in items if runs(item)]

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when != "call":
        return
    outcome = report.outcome
    if isinstance(getattr(call.excinfo, "value", None), PACKAGE.BadRequestError):
        body = call.excinfo.value.body or {}
        message = body.get("message") or body.get("error", {}).get("message", "")
        named = re.match("[a-z_]+", message)
        sent = named and re.search(rf"\b{named.group()}\b", inspect.getsource(item.function))
        outcome = f"{'named' if sent else 'refused'}: {message}"
    elif call.excinfo:
        outcome = f"failed: {call.excinfo.exconly()[:2000]}"
    with open(os.environ["SDIST_OUTCOMES"], "a") as out:
        out.write(json.dumps([item.nodeid, outcome]) + "\n")
'''


def run(package, client, with_v1, files, source):
    """[(test, outcome)] of one package."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tests = folder / "tests"
        names = set()
        for name in ["__init__.py", "utils.py", "api_resources/__init__.py"] + [f"api_resources/{f}" for f in files]:
            text = (source / "tests" / name).read_text().replace('response_id="response_id"', f'response_id="{KEPT}"')
            names |= set(re.findall(r'\bmodel(?:_id)?="([^"]+)"', text))
            (tests / name).parent.mkdir(parents=True, exist_ok=True)
            (tests / name).write_text(text)
        for init in (source / "tests/api_resources").rglob("__init__.py"):
            if (tests / init.relative_to(source / "tests")).parent.exists():
                shutil.copy(init, tests / init.relative_to(source / "tests"))
        if package == "anthropic":
            from anthropic.resources.messages import DEPRECATED_MODELS
            names |= set(DEPRECATED_MODELS)
        conftest = CONFTEST.replace("PACKAGE", package).replace("CLIENT", client).replace("KEPT", KEPT)
        (tests / "conftest.py").write_text(conftest)
        (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = session\n"
                                           "asyncio_default_test_loop_scope = session\n")
        (folder / "rich.py").touch()  # their helpers print with it, but only what they do not check here
        outcomes = folder / "outcomes"
        outcomes.touch()
        served = [word for name in sorted(names) for word in ("--served-model-name", name)]
        with Scripted(["Hello."], *served) as scripted:
            url = str(scripted.base_url).rstrip("/")
            env = dict(os.environ, TEST_API_BASE_URL=url if with_v1 else url.removesuffix("/v1"), SDIST_EVERY=str(fixture.SOAK),
                       SDIST_WANTED=json.dumps(files), SDIST_OUTCOMES=str(outcomes), PYTHONDONTWRITEBYTECODE="1")
            done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "tests"], cwd=folder,
                                  env=env, capture_output=True, text=True, timeout=250)
        found = [json.loads(line) for line in outcomes.read_text().splitlines()]
        if not found:
            sys.exit(f"error: no test of {package} ran\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return found


def good(test, outcome):
    if re.search(REFUSED, test) and "path_params" not in test:
        return outcome.startswith(("named: ", "refused: "))
    return outcome == "passed" or (outcome.startswith("named: ") and "with_all_params" in test)


def main():
    folder = pathlib.Path(subprocess.run([fixture.ROOT / "scripts" / "fetch_sdists.sh", "--path"], capture_output=True, text=True,
                                         check=True).stdout.strip())
    cases = []
    for package, (client, with_v1, files) in SUITES.items():
        source = next(iter(folder.glob(f"{package}-*")), None)
        if source is None:
            print(f"skipped: the tests of {package} are not there; run scripts/fetch_sdists.sh")
            cases.append((f"sdist.{package}", "skipped"))
            continue
        found = run(package, client, with_v1, files, source)
        faults = [(test, outcome) for test, outcome in found if not good(test, outcome)]
        passed = sum(outcome == "passed" for _, outcome in found)
        print(f"{source.name}: {len(found)} tests, {passed} passed, {len(found) - passed - len(faults)} rightly refused, "
              f"{len(faults)} faults")
        for test, outcome in faults:
            print(f"  {test}\n    {outcome}")
        cases += [(f"sdist.{package}.{test}", None if good(test, outcome) else "failure") for test, outcome in found]
    fixture.write_cases(cases)
    sys.exit(any(outcome == "failure" for _, outcome in cases))


if __name__ == "__main__":
    main()
