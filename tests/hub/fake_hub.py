"""A server that behaves like the hub, and a second one like the storage it redirects to; both on 127.0.0.1.

Repositories are dictionaries of file contents. Files over 1 kB count as large: their bytes come from the storage, and their
hash is a SHA-256; the others come from the hub itself, with git's blob hash."""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse

LARGE = 1000


def content_hash(data):
    if len(data) > LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.handle_one()

    def do_GET(self):
        self.handle_one()

    def handle_one(self):
        path = urllib.parse.unquote(self.path)
        record = (self.server.kind, self.command, path, self.headers.get("Authorization"), self.headers.get("Range"))
        with self.server.hub.lock:
            self.server.hub.requests.append(record)
        try:
            self.server.hub.answer(self, path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        headers.setdefault("Content_Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Hub:
    def __init__(self):
        self.lock = threading.Lock()
        self.requests = []  # (server, method, path, authorization, range)
        self.repos = {}  # name -> {"files": {path: bytes}, "commit": str, "token": needed or None, "gated": bool}
        self.faults = []  # [pattern of the path, how often, function(handler, data) that answers]
        self.ranges = True
        self.servers = []
        for kind in ("hub", "storage"):
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            server.daemon_threads = True
            server.kind, server.hub = kind, self
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self.servers.append(server)
        self.url, self.storage_url = ["http://127.0.0.1:%d" % server.server_address[1] for server in self.servers]

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def add(self, name, files, revision="main", token=None, gated=False):
        commit = hashlib.sha1(repr((name, sorted(files.items()))).encode()).hexdigest()
        repo = self.repos.setdefault(name, {"revisions": {}, "commits": {}})
        repo.update(token=token, gated=gated)
        repo["revisions"][revision] = commit
        repo["commits"][commit] = files
        return commit

    def fail(self, pattern, times, answer):
        self.faults.append([re.compile(pattern), times, answer])

    def seen(self, kind, method=None):
        return [r for r in self.requests if r[0] == kind and method in (None, r[1])]

    # ---- answers ----

    def answer(self, handler, path):
        with self.lock:
            fault = next((f for f in self.faults if f[1] > 0 and f[0].search("%s %s" % (handler.command, path))), None)
            if fault:
                fault[1] -= 1
        if handler.server.kind == "storage":
            data = self.find_blob(path.strip("/"))
            if fault:
                return fault[2](handler, data)
            return self.send_bytes(handler, data, ETag='"storage-tag"')
        if fault:
            return fault[2](handler, b"")
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        resolve = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([0-9a-f]{40})/(.+)", path)
        if not api and not resolve:
            return handler.reply(404)
        repo = self.repos.get((api or resolve)[1])
        if repo is None:
            return handler.reply(401, X_Error_Code="RepoNotFound")
        given = handler.headers.get("Authorization")
        if repo["token"] and given is None and not repo["gated"]:
            return handler.reply(401, X_Error_Code="RepoNotFound")
        if repo["gated"] and (given is None or given != "Bearer " + repo["token"]):
            return handler.reply(401 if given is None else 403, X_Error_Code="GatedRepo")
        if repo["token"] and given != "Bearer " + repo["token"]:
            return handler.reply(401)
        if api:
            commit = repo["revisions"].get(api[2], api[2] if api[2] in repo["commits"] else None)
            if commit is None:
                return handler.reply(404, X_Error_Code="RevisionNotFound")
            listing = {"id": api[1], "sha": commit, "siblings": [{"rfilename": f} for f in repo["commits"][commit]]}
            return handler.reply(200, json.dumps(listing).encode(), Content_Type="application/json")
        data = repo["commits"].get(resolve[2], {}).get(resolve[3])
        if data is None:
            return handler.reply(404, X_Error_Code="EntryNotFound")
        digest = content_hash(data)
        if len(data) <= LARGE:
            return self.send_bytes(handler, data, ETag='"%s"' % digest, X_Repo_Commit=resolve[2])
        return handler.reply(302, Location="%s/%s" % (self.storage_url, digest), X_Linked_ETag='"%s"' % digest,
                             X_Linked_Size=str(len(data)), X_Repo_Commit=resolve[2])

    def find_blob(self, digest):
        for repo in self.repos.values():
            for files in repo["commits"].values():
                for data in files.values():
                    if content_hash(data) == digest:
                        return data
        raise KeyError(digest)

    def send_bytes(self, handler, data, **headers):
        match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        if not match or not self.ranges:
            return handler.reply(200, data, Accept_Ranges="bytes", **headers)
        start = int(match[1])
        if start >= len(data):
            return handler.reply(416, Content_Range="bytes */%d" % len(data))
        span = "bytes %d-%d/%d" % (start, len(data) - 1, len(data))
        return handler.reply(206, data[start:], Content_Range=span, **headers)


# ---- faults ----

def status(code, **headers):
    return lambda handler, data: handler.reply(code, **headers)


def truncated(handler, data, keep=None):
    """Says the whole length, sends a part (of what a range asks for) and hangs up."""
    match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    start = int(match[1]) if match else 0
    rest = data[start:]
    handler.send_response(206 if match else 200)
    if match:
        handler.send_header("Content-Range", "bytes %d-%d/%d" % (start, len(data) - 1, len(data)))
    handler.send_header("Content-Length", str(len(rest)))
    handler.end_headers()
    handler.wfile.write(rest[:len(rest) // 2 if keep is None else keep])
    handler.wfile.flush()
    handler.close_connection = True


def wrong_bytes(handler, data):
    handler.reply(200, bytes([data[0] ^ 1]) + data[1:])


def stall_after(count, event):
    """Sends `count` bytes, then nothing until the event is set."""
    def answer(handler, data):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:count])
        handler.wfile.flush()
        event.wait(60)
        handler.close_connection = True
    return answer
