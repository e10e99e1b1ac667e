"""Replicas of `ingot serve` behind Ray Serve: each runs one server on a free port and passes requests to it, streams included.

    serve run serve.yaml                                    # the settings of serve.yaml
    serve run ingot_app:build model=/models/model.gguf      # or by hand

A server that ends takes its replica with it, and Ray Serve starts another; a replica that ends, however it does, takes its server with it.
"""

import asyncio
import os
import re
import shutil
import subprocess
import threading
import time

import aiohttp
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

LISTENING = re.compile(r"http://127\.0\.0\.1:(\d+)")
# Between two neighbours in HTTP, not from end to end.
HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization", "host", "content-length"}
# The replica holds the other end of stdin: when it is gone, for whatever reason, the server is asked to drain and end.
BESIDE = ('exec 3<&0; "$@" 3<&- </dev/null & server=$!; { read -r _; kill "$server"; } <&3 3<&- & reader=$!; exec 3<&-; '
          'wait "$server"; status=$?; kill "$reader" 2>/dev/null; exit "$status"')


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    binary: str = Field("ingot", description="the program, on every node")
    model: str | None = Field(None, description="a GGUF file, a folder, or OWNER/NAME; none: the default model")
    options: list[str] = Field([], description="more flags of `ingot serve`")
    cpus: float = Field(2, description="cores of a replica, which are its threads too")
    resources: dict[str, float] = Field({}, description="what else a replica needs of its node, by Ray's names")
    min_replicas: int = 1
    max_replicas: int = 4
    target_requests: float = Field(16, description="requests a replica that the number of replicas is steered to")
    most_requests: int = Field(128, description="requests a replica takes; more wait in Ray Serve's proxy")
    start_s: float = Field(600, description="how long a model may take to load")
    drain_s: float = Field(60, description="how long running requests may take when a replica is to end")
    check_s: float = Field(5, description="seconds between two checks of a replica")
    upscale_s: float = Field(30, description="how long there must be more requests before a replica is added")
    downscale_s: float = Field(600, description="how long there must be fewer before one is removed")


class Server:
    """One `ingot serve`; `ended` is called, in a thread, if it ends before stop()."""

    def __init__(self, settings, ended):
        program = shutil.which(settings.binary)
        if not program:
            raise FileNotFoundError(f"there is no program {settings.binary} on this node")
        model = ["-m", settings.model] if settings.model else []
        threads = ["--threads", str(max(1, int(settings.cpus)))]
        command = [program, "serve", *model, *threads, *settings.options, "--host", "127.0.0.1", "--port", "0", "--drain-timeout", str(settings.drain_s)]
        self.process = subprocess.Popen(["sh", "-c", BESIDE, "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        self.url, self.last, self.stopping, self.listens = None, "", False, threading.Event()
        threading.Thread(target=self._watch, args=(ended,), daemon=True).start()

    def _watch(self, ended):
        for line in self.process.stdout:
            print(line, end="", flush=True)  # into the replica's log
            self.last = line.strip() or self.last
            if not self.url and (found := LISTENING.search(line)):
                self.url = found.group(0)
                self.listens.set()
        status = self.process.wait()
        self.listens.set()
        if not self.stopping:
            ended(status, self.last)

    def wait_listening(self, seconds):
        """It listens before the model is loaded; /health tells when it is."""
        if not self.listens.wait(seconds) or not self.url:
            raise RuntimeError(f"`ingot serve` did not start: {self.last}")

    def stop(self, seconds):
        """Lets it drain, then ends it."""
        self.stopping = True
        self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)


@serve.deployment(name="Ingot")
class Replica:
    async def __init__(self, settings: dict):
        self.settings = Settings(**settings)
        self.name = serve.get_replica_context().replica_id.unique_id
        self.ready = False
        self.server = Server(self.settings, self._server_ended)
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=10), auto_decompress=False,
                                             connector=aiohttp.TCPConnector(limit=0))
        try:
            await asyncio.to_thread(self.server.wait_listening, self.settings.start_s)
            end = time.monotonic() + self.settings.start_s
            while not await self._healthy():
                if time.monotonic() > end:
                    raise RuntimeError(f"the model was not loaded within {self.settings.start_s} s: {self.server.last}")
                await asyncio.sleep(0.1)
        except BaseException:
            self.server.stop(5)
            raise
        self.ready = True

    def _server_ended(self, status, last):
        print(f"ingot serve ended with status {status}: {last}", flush=True)
        if self.ready:
            os._exit(1)  # at once: Ray Serve sends no more requests here, and starts another replica

    async def _healthy(self):
        try:
            async with self.session.get(self.server.url + "/health", timeout=aiohttp.ClientTimeout(total=5)) as reply:
                return reply.status == 200
        except (aiohttp.ClientError, asyncio.TimeoutError):
            if self.server.process.poll() is not None:
                raise RuntimeError(f"`ingot serve` ended: {self.server.last}") from None
            return False

    async def check_health(self):
        if not await self._healthy():
            raise RuntimeError("/health is not 200")

    async def __call__(self, request: Request):
        headers = [(name, value) for name, value in request.headers.items() if name not in HOP_HEADERS]
        target = self.server.url + request.url.path + (f"?{request.url.query}" if request.url.query else "")
        try:
            reply = await self.session.request(request.method, target, headers=headers, data=await request.body())
        except aiohttp.ClientError as error:
            message = f"the server of this replica is gone: {type(error).__name__}"
            return JSONResponse({"error": {"message": message, "type": "server_error", "param": None, "code": "replica_gone"}}, 502)

        async def body():
            try:
                async for chunk in reply.content.iter_any():
                    yield chunk
            finally:
                reply.close()  # a client that left: the server cancels

        kept = {name: value for name, value in reply.headers.items() if name.lower() not in HOP_HEADERS}
        return StreamingResponse(body(), reply.status, {**kept, "X-Replica": self.name})

    async def __del__(self):
        if server := getattr(self, "server", None):
            await asyncio.to_thread(server.stop, self.settings.drain_s + 10)
            await self.session.close()


def build(settings: Settings) -> serve.Application:
    return Replica.options(
        max_ongoing_requests=settings.most_requests,
        ray_actor_options={"num_cpus": settings.cpus, "resources": settings.resources},
        autoscaling_config=AutoscalingConfig(min_replicas=settings.min_replicas, max_replicas=settings.max_replicas,
                                             initial_replicas=settings.min_replicas, target_ongoing_requests=settings.target_requests,
                                             upscale_delay_s=settings.upscale_s, downscale_delay_s=settings.downscale_s),
        # Requests with the same X-Session-ID go to the same replica, which has their prefix; those without one go anywhere.
        request_router_config=RequestRouterConfig(request_router_class="ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"),
        graceful_shutdown_timeout_s=settings.drain_s + 15,
        health_check_period_s=settings.check_s,
    ).bind(settings.model_dump())
