"""A server that behaves like the hub, and a second one like the storage it redirects to; both on 127.0.0.1.

Repositories are dictionaries of file contents. Files over 1 kB count as large: their bytes come from the storage, and their
hash is a SHA-256; the others come from the hub itself, by way of a redirect within it, with git's blob hash."""

import hashlib
import http.server
import json
import re
import ssl
import sys
import threading
import urllib.parse

LARGE = 1000


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def content_hash(data):
    return hashlib.sha256(data).hexdigest() if len(data) > LARGE else git_hash(data)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.handle_request()

    def do_GET(self):
        self.handle_request()

    def handle_request(self):
        url = urllib.parse.urlsplit(self.path)  # a proxy is asked for whole addresses
        path = urllib.parse.unquote(url.path)
        self.raw_path = url.path
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


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients that hang up, or do not like a certificate, are what the tests are about; all else is a bug here."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Hub:
    def __init__(self, certificate=None):
        """`certificate`: (certificate, key) files, for a hub that speaks TLS; its storage does not."""
        self.lock = threading.Lock()
        self.requests = []  # (server, method, path, authorization, range)
        self.repos = {}  # name -> {"revisions": {name: commit}, "commits": {commit: {path: bytes}}, "token", "gated"}
        self.renamed = {}  # old name -> new name
        self.faults = []  # [pattern of the path, how often, function(handler, data) that answers]
        self.ranges = True
        self.servers = []
        for kind in ("hub", "storage"):
            server = Server(("127.0.0.1", 0), Handler)
            server.kind, server.hub = kind, self
            if certificate and kind == "hub":
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self.servers.append(server)
        ports = [server.server_address[1] for server in self.servers]
        self.url = "%s://127.0.0.1:%d" % ("https" if certificate else "http", ports[0])
        self.storage_url = "http://127.0.0.1:%d" % ports[1]

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
        if handler.server.kind == "storage" or re.fullmatch("/[0-9a-f]{64}", path):
            data = self.find_blob(path.strip("/"))
            if fault:
                return fault[2](handler, data)
            return self.send_bytes(handler, data, ETag='"storage-tag"')
        if fault:
            return fault[2](handler, b"")
        for old, new in self.renamed.items():
            if "/%s/" % old in path:
                return handler.reply(307, Location=urllib.parse.quote(path.replace(old, new, 1)))
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/(.+)", path)
        resolve = re.fullmatch(r"/(api/resolve-cache/models/)?([^/]+/[^/]+)/(?:resolve/)?([0-9a-f]{40}|main)/(.+)", path)
        # A slash in a revision must be encoded.
        if (not api and not resolve) or (api and handler.raw_path.count("/") != 6):
            return handler.reply(404)
        repo = self.repos.get(api[1] if api else resolve[2])
        if repo is None:
            return handler.reply(401, X_Error_Code="RepoNotFound")
        if not self.allows(repo, handler, listing=bool(api)):
            return
        if api:
            return self.send_listing(handler, repo, *api.groups())
        commit = repo["revisions"].get(resolve[3], resolve[3])
        self.send_file(handler, repo, commit, resolve[4], moved=bool(resolve[1]))

    def allows(self, repo, handler, listing):
        """The listing of a gated repository is public, its files are not. What is private does not seem to exist."""
        given = handler.headers.get("Authorization")
        if repo["token"] is None or given == "Bearer " + repo["token"] or (repo["gated"] and listing):
            return True
        if repo["gated"]:
            handler.reply(401 if given is None else 403, X_Error_Code="GatedRepo")
        else:
            handler.reply(401, **({"X_Error_Code": "RepoNotFound"} if given is None else {}))
        return False

    def send_listing(self, handler, repo, name, what, revision):
        commit = repo["revisions"].get(revision, revision if revision in repo["commits"] else None)
        if commit is None:
            return handler.reply(404, X_Error_Code="RevisionNotFound")
        files = repo["commits"][commit]
        listing = {"id": name, "sha": commit, "siblings": [{"rfilename": f} for f in files]}
        if what == "tree":
            listing = [{"type": "file", "path": f, "size": len(data), "oid": git_hash(data),
                        **({"lfs": {"oid": content_hash(data), "size": len(data), "pointerSize": 130}}
                           if len(data) > LARGE else {})} for f, data in files.items()]
        handler.reply(200, json.dumps(listing).encode(), Content_Type="application/json")

    def send_file(self, handler, repo, commit, path, moved):
        data = repo["commits"].get(commit, {}).get(path)
        if data is None:
            return handler.reply(404, X_Error_Code="EntryNotFound")
        digest = content_hash(data)
        if len(data) > LARGE:
            return handler.reply(302, Location="%s/%s" % (self.storage_url, digest), X_Linked_ETag='"%s"' % digest,
                                 X_Linked_Size=str(len(data)), X_Repo_Commit=commit, ETag='"of-the-redirect"')
        if not moved:
            place = handler.path.replace("/resolve/", "/")
            place = re.sub(r"^(https?://[^/]+)?/", "/api/resolve-cache/models/", place)
            return handler.reply(307, b"moved", Location=place, X_Repo_Commit=commit)
        self.send_bytes(handler, data, ETag='"%s"' % digest, X_Repo_Commit=commit)

    def find_blob(self, digest):
        for repo in self.repos.values():
            for files in repo["commits"].values():
                for data in files.values():
                    if content_hash(data) == digest:
                        return data
        raise KeyError(digest)

    def send_bytes(self, handler, data, **headers):
        start = asked_start(handler)
        if start == 0 or not self.ranges:
            return handler.reply(200, data, Accept_Ranges="bytes", **headers)
        if start >= len(data):
            return handler.reply(416, Content_Range="bytes */%d" % len(data))
        send_range(handler, data, start, len(data), **headers)


def asked_start(handler):
    match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    return int(match[1]) if match else 0


def send_range(handler, data, start, end, **headers):
    span = "bytes %d-%d/%d" % (start, end - 1, len(data))
    handler.reply(206, data[start:end], Content_Range=span, **headers)


# ---- faults ----

def status(code, **headers):
    return lambda handler, data: handler.reply(code, **headers)


def truncated(handler, data, keep=None):
    """Says the whole length, sends a part (of what a range asks for) and hangs up."""
    start = asked_start(handler)
    rest = data[start:]
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", "bytes %d-%d/%d" % (start, len(data) - 1, len(data)))
    handler.send_header("Content-Length", str(len(rest)))
    handler.end_headers()
    handler.wfile.write(rest[:len(rest) // 2 if keep is None else keep])
    handler.wfile.flush()
    handler.close_connection = True


def short_range(handler, data):
    """A range that ends before the file does, as a server may choose."""
    start = asked_start(handler)
    send_range(handler, data, start, min(start + 60_000, len(data)))


def other_range(handler, data):
    """Another range than the one asked for."""
    send_range(handler, data, 10, 60_010)


def wrong_bytes(handler, data):
    handler.reply(200, bytes([data[0] ^ 1]) + data[1:])


def too_long(handler, data):
    handler.reply(200, data + b"more")


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
