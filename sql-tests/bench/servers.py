"""Servers that a benchmark starts, measures and stops."""
import http.client, os, pathlib, re, signal, socket, subprocess, sys, tempfile, time

import psycopg2


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


class Millpond:
    """A server on an empty directory of its own; `start` after `kill` starts it again on the same one."""

    def __init__(self, binary: str, *options: str, environment: dict[str, str] = {}):
        self.binary, self.options, self.environment = binary, options, {**os.environ, **environment}
        self.directory = tempfile.TemporaryDirectory(prefix="millpond-bench-")
        self.log = open(pathlib.Path(self.directory.name) / "server.log", "w")
        self.start()

    def start(self) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [self.binary, "--data-dir", f"{self.directory.name}/data", "--listen", f"127.0.0.1:{self.port}", "--http", "off", *self.options],
            stdout=self.log, stderr=subprocess.STDOUT, env=self.environment)
        for _ in range(600):
            try:
                self.connect().close()
                return
            except psycopg2.OperationalError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        sys.exit("the server did not start: " + (pathlib.Path(self.directory.name) / "server.log").read_text()[-2000:])

    def connect(self):
        connection = psycopg2.connect(host="127.0.0.1", port=self.port, user="millpond", dbname="millpond")
        connection.autocommit = True
        return connection

    def sql(self, text: str) -> list[tuple]:
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(text)
            return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def value(self, text: str):
        return self.sql(text)[0][0]

    def peak_memory_mib(self) -> float:
        return self._memory("VmHWM")

    def memory_mib(self) -> float:
        return self._memory("VmRSS")

    def _memory(self, key: str) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{key}:\s+(\d+)", status)[1]) / 1024

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.kill()
        self.log.close()
        self.directory.cleanup()


class ObjectServer:
    """An S3 server, the one of the tests, with a bucket in it."""

    BUCKET = "bench"

    def __init__(self):
        installed = subprocess.run([pathlib.Path(__file__).parent.parent / "object_server/install"], check=True, capture_output=True, text=True)
        self.port = free_port()
        self.process = subprocess.Popen([f"{installed.stdout.strip()}/bin/moto_server", "--host", "127.0.0.1", "--port", str(self.port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
                            "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
        for _ in range(600):
            if self._make_bucket():
                return
            time.sleep(0.1)
        self.stop()
        sys.exit("the S3 server did not start")

    def _make_bucket(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("PUT", f"/{self.BUCKET}", headers={
                "Authorization": "AWS4-HMAC-SHA256 Credential=testing/20310101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
