"""Hosts on one machine: network namespaces with addresses and names of their own, joined by a link, and
mpirun across them. Needs the rights of root."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time

AGENT = """#!/bin/sh
# What mpirun calls instead of ssh: AGENT ADDRESS COMMAND...
host=${1##*.}
shift
exec ip netns exec PREFIX$host unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' studio-$host "$*"
"""


def missing(*programs):
    """Why there can be none here, or none with these programs, or None."""
    for program in ("ip", "unshare", *programs):
        if shutil.which(program) is None:
            return f"there is no {program}"
    name = f"ingot-{os.getpid()}-probe"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"network namespaces are not allowed here: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


def pids_in(namespace):
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


def remove(namespace):
    """With whatever runs in it."""
    for _ in range(100):
        pids = pids_in(namespace)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            break
        time.sleep(0.05)
    subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def remove_left_over():
    """What tests have left that were killed: namespaces bear the number of the process that made them."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for name in re.findall(r"^ingot-\d+-\w+", listed.stdout, re.MULTILINE):
        if not pathlib.Path("/proc", name.split("-")[1]).exists():
            remove(name)


def do(command):
    subprocess.run(command.split(), check=True, capture_output=True, text=True)


class Hosts:
    """Two hosts, numbers 1 and 2: studio-1 at 10.97.0.1 and studio-2 at 10.97.0.2, in namespaces named after this process."""

    def __init__(self, relay=None, delay_us=0, mbit=0):
        """`relay`: the program of bench/link_relay.cc, then the link has a delay, one way, and a bandwidth (0: any)."""
        self.prefix = f"ingot-{os.getpid()}-"
        self.relay, self.delay_us, self.mbit = relay, delay_us, mbit
        self.process = None

    def __enter__(self):
        remove_left_over()
        self.folder = tempfile.TemporaryDirectory()
        self.agent = pathlib.Path(self.folder.name) / "agent"
        self.agent.write_text(AGENT.replace("PREFIX", self.prefix))
        self.agent.chmod(self.agent.stat().st_mode | stat.S_IXUSR)
        try:
            for host in (1, 2):
                do(f"ip netns add {self.namespace(host)}")
            self.connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def connect(self):
        if self.relay:
            ends = [word for host in (1, 2) for word in (self.namespace(host), self.address(host))]
            self.process = subprocess.Popen([self.relay, *ends, str(self.delay_us), str(self.mbit)], stdout=subprocess.PIPE)
            self.process.stdout.readline()
            return
        do(f"ip -n {self.namespace(1)} link add wire type veth peer name wire netns {self.namespace(2)}")
        for host in (1, 2):
            do(f"ip -n {self.namespace(host)} addr add {self.address(host)}/24 dev wire")
            do(f"ip -n {self.namespace(host)} link set wire up")
            do(f"ip -n {self.namespace(host)} link set lo up")

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()
        for host in (1, 2):
            remove(self.namespace(host))
        self.folder.cleanup()

    def namespace(self, host):
        return f"{self.prefix}{host}"

    @staticmethod
    def address(host):
        return f"10.97.0.{host}"

    def pids(self, host):
        return pids_in(self.namespace(host))

    def inside(self, host):
        """What runs a command there, under the host's name."""
        return ["ip", "netns", "exec", self.namespace(host), "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"studio-{host}"]

    def mpirun(self, ranks, hosts=2):
        """Ranks in turn on the hosts: those of the same host are neighbours."""
        each = -(-ranks // hosts)
        slots = ",".join(f"{self.address(host)}:{each}" for host in range(1, hosts + 1))
        nets = ["--mca", "btl_tcp_if_include", "10.97.0.0/24", "--mca", "oob_tcp_if_include", "10.97.0.0/24"]
        return [*self.inside(1), "mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
                "--mca", "plm_rsh_agent", str(self.agent), "--mca", "plm_rsh_no_tree_spawn", "1", *nets, "--host", slots, "-n", str(ranks)]
