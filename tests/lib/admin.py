"""The API of a running daemon, over its unix socket or over TCP."""
import contextlib
import http.client
import json
import socket
import ssl
import urllib.parse

API = "/api/v1"


class Answer:
    """What came back. `json` is its body where it is JSON."""

    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, response.headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def etag(self):
        """The revision that the answer is about."""
        return int(self.headers["ETag"].strip('"'))

    @property
    def kind(self):
        """The type of the problem."""
        return self.json["type"]

    def __repr__(self):
        return f"{self.status} {self.body[:400]!r}"


class _Unix(http.client.HTTPConnection):
    def __init__(self, path, timeout_s):
        super().__init__("tarn", timeout=timeout_s)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Refused(Exception):
    """The daemon says no."""

    def __init__(self, method, path, answer):
        super().__init__(f"{method} {path}: {answer}")
        self.answer = answer


class Api:
    """Asks `socket`, a path, or `address`, (host, port), with a token and, unless it is plain, TLS.

    `source` is the address to come from. Each question has a connection of its own unless the Api is a context manager.
    """

    def __init__(self, socket=None, *, address=None, token=None, plain=False, source=None, timeout_s=30):
        self.socket, self.address, self.token, self.plain = socket, address, token, plain
        self.source, self.timeout_s = source, timeout_s
        self.kept = None

    def __enter__(self):
        self.kept = self._connection()
        return self

    def __exit__(self, *_):
        self.kept.close()
        self.kept = None

    def _connection(self):
        if self.socket is not None:
            return _Unix(self.socket, self.timeout_s)
        source = (self.source, 0) if self.source else None
        if self.plain:
            return http.client.HTTPConnection(*self.address, timeout=self.timeout_s, source_address=source)
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(*self.address, timeout=self.timeout_s, context=trusting, source_address=source)

    def ask(self, method, path, body=None, **headers):
        """The answer, whatever it says. A field name has underscores for dashes: If_Match. A path begins with / for the
        whole of it, without for one under /api/v1."""
        path = path if path.startswith("/") else f"{API}/{path}"
        headers = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        connection = self.kept or self._connection()
        with contextlib.nullcontext() if self.kept else contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response, response.read())

    def good(self, method, path, body=None, **headers):
        """The answer, which must be a success."""
        answer = self.ask(method, path, body, **headers)
        if answer.status >= 300:
            raise Refused(method, path, answer)
        return answer

    def get(self, path):
        return self.good("GET", path).json

    def put(self, path, body, **headers):
        return self.good("PUT", path, body, **headers).json

    def post(self, path, body=None, **headers):
        return self.good("POST", path, body, **headers).json

    def delete(self, path, **headers):
        return self.good("DELETE", path, **headers)

    def stream(self, path="live", seconds=10):
        """The server-sent events of a path as (event, data) pairs, for so many seconds at most between two."""
        connection = self._connection()
        connection.timeout = seconds
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with contextlib.closing(connection):
            connection.request("GET", f"{API}/{path}", None, headers)
            response = connection.getresponse()
            if response.status != 200:
                raise Refused("GET", path, Answer(response, response.read()))
            event, data = "message", []
            while line := response.fp.readline() if not response.chunked else response.readline():
                name, _, value = line.decode().rstrip("\r\n").partition(":")
                if name == "event":
                    event = value.strip()
                elif name == "data":
                    data.append(value.strip())
                elif not name and not value and data:
                    yield event, json.loads("\n".join(data))
                    event, data = "message", []


def name(text):
    """A name as one segment of a path."""
    return urllib.parse.quote(text, safe="")
