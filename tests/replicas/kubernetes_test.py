#!/usr/bin/env python3
"""The objects of packaging/kubernetes: against the schemas of Kubernetes, against one another, and against the server that they start.

There is no cluster here: what is left untested is what Kubernetes does with them.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging" / "kubernetes"
sys.path.insert(0, str(ROOT / "tests" / "server"))

import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

import server as fixture  # noqa: E402
import tiny_model  # noqa: E402

VERSIONS = ("1.30.0", "1.33.0", "1.37.0")  # the oldest with `sleep` in preStop by default, and the newest that the package knows


def objects():
    """(kind, name) -> object, over all files."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            key = (each["kind"], each["metadata"]["name"])
            assert key not in found, key
            found[key] = each
    return found


class Configured(fixture.Server):
    """`ingot serve` as the StatefulSet starts it, but for folders, the address and the model."""

    def __init__(self, command, config, **more):
        super().__init__(**more)
        self.words, self.config = command, config

    def command(self):
        return [str(fixture.binary()), *self.words[1:], "-m", str(self.model), "--host", self.host, "--port", str(self.port)]


class KubernetesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.objects = objects()
        cls.set = cls.objects["StatefulSet", "ingot"]["spec"]
        cls.pod = cls.set["template"]["spec"]
        cls.container = cls.pod["containers"][0]
        cls.config = cls.objects["ConfigMap", "ingot"]["data"]["ingot.conf"]

    def serve(self):
        """A server with the words and the configuration of the container, and a model that is tiny."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        place = pathlib.Path(folder.name)
        for mount in self.container["volumeMounts"]:
            (place / mount["mountPath"][1:]).mkdir(parents=True)
        (place / "etc/ingot/ingot.conf").write_text(re.sub(r"= (/\S+)", rf"= {place}\1", self.config))
        words = [*self.container["command"], *self.container["args"]]
        words = [re.sub("^/etc", f"{place}/etc", word).replace("$(CPUS)", "1") for word in words]
        env = {each["name"]: f"{place}{each['value']}" for each in self.container["env"] if "value" in each}
        return Configured(words, self.config, model=tiny_model.make(place / "tiny", max_len=16384), env=env)

    def test_kubernetes_accepts_them(self):
        self.assertGreaterEqual(len(self.objects), 12)
        for key, each in self.objects.items():
            for version in VERSIONS:
                with self.subTest(key, version=version):
                    kubernetes_validate.validate(each, version, strict=True)
        wrong = yaml.safe_load(yaml.safe_dump(self.objects["StatefulSet", "ingot"]))
        wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)

    def test_they_name_what_is_there(self):
        workloads = [each for (kind, _), each in self.objects.items() if kind in ("StatefulSet", "Deployment")]
        pods = [each["spec"]["template"] for each in workloads]
        for (kind, name), each in self.objects.items():
            spec = each.get("spec", {})
            selector = spec.get("selector", {}) if kind == "Service" else spec.get("selector", {}).get("matchLabels") if spec.get("selector") else None
            with self.subTest(kind, name=name):
                if selector:
                    chosen = [pod for pod in pods if selector.items() <= pod["metadata"]["labels"].items()]
                    self.assertEqual(len(chosen), 1)
                    for port in spec.get("ports", []):
                        self.assertIn(port["targetPort"], [one["name"] for one in chosen[0]["spec"]["containers"][0]["ports"]])
                if kind == "HorizontalPodAutoscaler":
                    target = spec["scaleTargetRef"]
                    self.assertEqual(self.objects[target["kind"], target["name"]]["apiVersion"], target["apiVersion"])
                if kind == "RoleBinding":
                    self.assertIn((each["roleRef"]["kind"], each["roleRef"]["name"]), self.objects)
                    self.assertIn((each["subjects"][0]["kind"], each["subjects"][0]["name"]), self.objects)
        self.assertIn(("Service", self.set["serviceName"]), self.objects)
        volumes = {one["name"] for one in self.pod["volumes"]} | {one["metadata"]["name"] for one in self.set["volumeClaimTemplates"]}
        self.assertEqual(volumes, {one["name"] for one in self.container["volumeMounts"]})
        claims = [one["persistentVolumeClaim"]["claimName"] for one in self.pod["volumes"] if "persistentVolumeClaim" in one]
        self.assertTrue(all(("PersistentVolumeClaim", claim) in self.objects for claim in claims))
        written = re.findall(r"^[a-z-]+ = (/var\S+)", self.config, re.M)
        self.assertTrue(written and all(path.startswith("/var/cache/ingot/") for path in written), "what is written lies on the volume")

    def test_the_image_is_the_one_that_packaging_builds(self):
        version = re.search(r"project\(\w+ VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        self.assertEqual(self.container["image"], f"ingot:{version}")
        dockerfile = (ROOT / "packaging/Dockerfile").read_text()
        self.assertIn(f"USER {self.pod['securityContext']['runAsUser']}\n", dockerfile)
        self.assertIn(self.container["command"][0], dockerfile)

    def test_the_image_has_what_its_build_reads(self):
        """What the Dockerfile copies, in a folder of its own: it can be configured, and every source is there."""
        with tempfile.TemporaryDirectory() as folder:
            for line in (ROOT / "packaging/Dockerfile").read_text().split("FROM debian")[1].splitlines():
                if line.startswith("COPY "):
                    *sources, to = line.split()[1:]
                    for source in sources:
                        place = pathlib.Path(folder) / to / (pathlib.Path(source).name if to[-1] == "/" or to == "." else "")
                        place.parent.mkdir(parents=True, exist_ok=True)
                        (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
            for command in (["scripts/fetch_katex.sh"], ["cmake", "--preset", "release", "-DINGOT_BUILD_TESTS=OFF"], ["ninja", "-C", "build", "-n", "ingot"]):
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stdout[-1000:] + done.stderr[-1000:])

    def test_probes_names_and_metrics(self):
        with self.serve() as server:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                self.assertEqual(server.get(self.container[probe]["httpGet"]["path"])[0], 200)
            # The names by which pods of the cluster call it, and one by which a page elsewhere might.
            for name in ("ingot", "ingot.default.svc.cluster.local", f"10.0.0.1:{server.port}"):
                self.assertEqual(server.get("/v1/models", {"Host": name})[0], 200, name)
            self.assertEqual(server.get("/v1/models", {"Host": "evil.example"})[0], 403)
            annotations = self.set["template"]["metadata"]["annotations"]
            status, text = server.get(annotations["prometheus.io/path"])
            self.assertEqual(status, 200)
            told = set(re.findall(r"^# TYPE (\S+) gauge$", text.decode(), re.M))
        rule = yaml.safe_load(self.objects["ConfigMap", "prometheus-adapter-ingot"]["data"]["config.yaml"])["rules"][0]
        series = re.compile(re.search(r'__name__=~"([^"]+)"', rule["seriesQuery"]).group(1))
        renamed = {re.sub(rule["name"]["matches"], rule["name"]["as"].replace("${1}", r"\1"), name) for name in told if series.search(name)}
        wanted = {metric["pods"]["metric"]["name"] for metric in self.objects["HorizontalPodAutoscaler", "ingot"]["spec"]["metrics"]}
        self.assertEqual(renamed, wanted)

    def test_it_ends_within_the_time_it_is_given(self):
        drain = float(re.search(r"^drain-timeout = (\S+)", self.config, re.M).group(1))
        self.assertGreaterEqual(self.pod["terminationGracePeriodSeconds"], self.container["lifecycle"]["preStop"]["sleep"]["seconds"] + drain + 10)
        with self.serve() as server:
            body = b'{"prompt": "Once", "max_tokens": 2500, "temperature": 0, "ignore_eos": true, "speculate": false}'
            request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
            answers = []
            client = threading.Thread(target=lambda: answers.append(urllib.request.urlopen(request, timeout=120).read()))
            client.start()
            while server.metrics()["vllm:num_requests_running"] == 0:
                time.sleep(0.01)
            server.signal()
            server.wait_draining()  # where the readiness probe says so
            self.assertEqual(server.get(self.container["livenessProbe"]["httpGet"]["path"])[0], 200)
            client.join()
            self.assertIn(b'"completion_tokens":2500', answers[0])
            self.assertEqual(server.wait(drain), 0)

    def test_the_router_takes_its_words(self):
        from sglang_router.launch_router import parse_router_args
        container = self.objects["Deployment", "ingot-router"]["spec"]["template"]["spec"]["containers"][0]
        script = (ROOT / "packaging/router/route.sh").read_text()
        self.assertEqual(container["command"], ["/opt/route.sh", "prefix"])
        own = re.search(r'exec .* -m "\$module" (.*) "\$@"', script.replace("\\\n", " ")).group(1).split()
        args = parse_router_args([*own, *container["args"]])
        self.assertEqual((args.host, args.port, args.selector), ("0.0.0.0", 8000, {"app.kubernetes.io/name": "ingot"}))
        self.assertLess(args.shutdown_grace_period_secs, self.objects["Deployment", "ingot-router"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])
        self.assertEqual(args.health_check_endpoint, self.container["readinessProbe"]["httpGet"]["path"])


if __name__ == "__main__":
    fixture.main()
