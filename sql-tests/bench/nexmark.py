#!/usr/bin/env python3
"""Nexmark on Millpond beside Flink, over the same CSV files, in one run.

    nexmark.py DATA_DIR [--only q0,q7] [--binary PATH] [--flink] [--json FILE]

Every query runs as a blackhole sink on a server of its own, parallelism 2, a checkpoint every 10 s. "seconds" goes from CREATE SINK to the
seal of the last epoch; peak_memory_mib is the server's VmHWM. With --flink the yardstick runs after each query and the ratio is printed.
"""
import argparse, json, pathlib, re, signal, subprocess, sys, tempfile, time, socket

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = {
    "person": "id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR, state VARCHAR, date_time TIMESTAMP, extra VARCHAR",
    "auction": "id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP, expires TIMESTAMP, "
               "seller BIGINT, category BIGINT, extra VARCHAR",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP, extra VARCHAR",
}
LEFT_OUT = {"q11", "q23"}


def queries() -> dict[str, str]:
    text = (HERE / "nexmark/queries.sql").read_text()
    found = {}
    for name, dialect, query in re.findall(r"^-- (q\d+)( @\w+)?\n(.*?)(?=^-- q|\Z)", text, re.M | re.S):
        if not dialect and name not in LEFT_OUT:
            found[name] = query.strip().rstrip(";")
    return found


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, binary: str):
        self.directory = tempfile.TemporaryDirectory(prefix="millpond-bench-")
        self.port, self.http = free_port(), free_port()
        self.log = open(pathlib.Path(self.directory.name) / "server.log", "w")
        self.process = subprocess.Popen([binary, "--data-dir", f"{self.directory.name}/data", "--listen", f"127.0.0.1:{self.port}",
                                         "--http", f"127.0.0.1:{self.http}"], stdout=self.log, stderr=subprocess.STDOUT)
        for _ in range(300):
            try:
                self.sql("SELECT 1")
                return
            except subprocess.CalledProcessError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        sys.exit("the server did not start: " + (pathlib.Path(self.directory.name) / "server.log").read_text()[-2000:])

    def sql(self, text: str) -> str:
        command = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "millpond", "-d", "millpond", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def peak_memory_mib(self) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()
        self.directory.cleanup()


def run(binary: str, data: pathlib.Path, query: str, timeout: float) -> dict:
    server = Server(binary)
    try:
        for table, columns in COLUMNS.items():
            server.sql(f"CREATE SOURCE {table} ({columns}, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') "
                       f"WITH (connector = 'file', path = '{data / table}', format = 'csv')")
        begin = time.monotonic()
        server.sql(f"CREATE SINK result AS {query} WITH (connector = 'blackhole')")
        state = ""
        while time.monotonic() - begin < timeout:
            state = server.sql("SELECT state FROM millpond.jobs WHERE name = 'result'")
            if state in ("finished", "failed"):
                break
            time.sleep(0.05)
        seconds = time.monotonic() - begin
        restarts = server.sql("SELECT restarts FROM millpond.jobs WHERE name = 'result'")
        return {"state": state, "seconds": round(seconds, 2), "peak_memory_mib": round(server.peak_memory_mib()), "restarts": int(restarts)}
    except subprocess.CalledProcessError as error:
        return {"state": "refused", "error": error.stderr.strip()[:300]}
    finally:
        server.stop()


def flink(data: pathlib.Path, name: str) -> dict:
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([str(HERE / "nexmark/flink/nexmark-flink"), str(data), "--only", name, "--json", out.name], check=True, stdout=subprocess.DEVNULL)
        result = json.load(open(out.name))
        return result[0] if isinstance(result, list) else result.get(name, result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--flink", action="store_true")
    parser.add_argument("--events", type=float, default=10e6)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    results = {}
    for name, query in queries().items():
        if only and name not in only:
            continue
        ours = run(arguments.binary, arguments.data.resolve(), query, arguments.timeout)
        line = {"millpond": ours}
        text = f"{name:4} millpond {ours}"
        if arguments.flink:
            line["flink"] = theirs = flink(arguments.data.resolve(), name)
            text += f" flink {theirs}"
            if ours.get("state") == "finished":
                line["ratio"] = round(theirs["seconds"] / ours["seconds"], 2)
                text += f" ratio {line['ratio']}"
        print(text, flush=True)
        results[name] = line
    ratios = [line["ratio"] for line in results.values() if "ratio" in line]
    if ratios:
        product = 1.0
        for ratio in ratios:
            product *= ratio
        print(f"geometric mean of {len(ratios)} ratios: {product ** (1 / len(ratios)):.2f}, least {min(ratios)}")
    if arguments.json:
        json.dump(results, open(arguments.json, "w"), indent=1)


if __name__ == "__main__":
    main()
