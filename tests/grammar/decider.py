"""Asks build/tests/grammar_decide which texts grammars accept."""

import json
import os
import pathlib
import subprocess

BINARY = os.environ.get("GRAMMAR_DECIDE") or str(pathlib.Path(__file__).parents[2] / "build/tests/grammar_decide")


def decide(jobs):
    """Answers to a list of jobs, in their order: see decide.cc."""
    lines = "\n".join(json.dumps(job) for job in jobs)
    done = subprocess.run([BINARY], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(jobs)
    return answers
