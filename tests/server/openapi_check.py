#!/usr/bin/env python3
"""schemathesis over /openapi.json: whatever the document allows, and much that it does not, is answered without a server error.

By hand, or as a part of `make soak`, because it brings 93 MB of packages:

    python -m venv ENV && ENV/bin/pip install schemathesis==4.32.5
    INGOT_BINARY=build/bin/ingot ENV/bin/python tests/server/openapi_check.py [EXAMPLES]

EXAMPLES of each endpoint: 25 unless told. The model is a tiny one, so answers cost nothing.
"""

import pathlib
import subprocess
import sys
import tempfile

import server as fixture
import tiny_model

SEED = 1


def main():
    examples = sys.argv[1] if len(sys.argv) > 1 else "25"
    with tempfile.TemporaryDirectory() as folder:
        options = ["--threads", 1, "--embeddings", "--max-model-len", 512, "--request-timeout", 5]
        with fixture.Server(*options, model=tiny_model.make(pathlib.Path(folder) / "model")) as server:
            command = [pathlib.Path(sys.executable).parent / "schemathesis", "run", server.url + "/openapi.json",
                       "--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing", "--max-examples", examples,
                       "--seed", str(SEED), "--generation-database", "none", "--suppress-health-check", "all", "--no-color"]
            status = subprocess.run(command, cwd=folder, check=False).returncode
    sys.exit(status)


if __name__ == "__main__":
    main()
