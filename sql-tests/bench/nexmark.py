#!/usr/bin/env python3
"""Nexmark on Millpond beside Flink, over the same CSV files, in one run.

    nexmark.py DATA_DIR [--only q0,q7] [--binary PATH] [--flink] [--json FILE]

Every query runs as a blackhole sink on a server of its own, parallelism 2, a checkpoint every 10 s. "seconds" goes from CREATE SINK to the
seal of the last epoch; peak_memory_mib is the server's VmHWM. With --flink the yardstick runs after each query and the ratio is printed.
"""
import argparse, json, pathlib, re, subprocess, tempfile, time

import psycopg2

from servers import Millpond

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


def run(binary: str, data: pathlib.Path, query: str, timeout: float) -> dict:
    server = Millpond(binary, "--parallelism", "2", "--checkpoint-interval-ms", "10000")
    try:
        for table, columns in COLUMNS.items():
            server.sql(f"CREATE SOURCE {table} ({columns}, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') "
                       f"WITH (connector = 'file', path = '{data / table}', format = 'csv')")
        begin = time.monotonic()
        server.sql(f"CREATE SINK result AS {query} WITH (connector = 'blackhole')")
        state = ""
        while time.monotonic() - begin < timeout:
            state = server.value("SELECT state FROM millpond.jobs WHERE name = 'result'")
            if state in ("finished", "failed"):
                break
            time.sleep(0.05)
        seconds = time.monotonic() - begin
        restarts = server.value("SELECT restarts FROM millpond.jobs WHERE name = 'result'")
        return {"state": state, "seconds": round(seconds, 2), "peak_memory_mib": round(server.peak_memory_mib()), "restarts": restarts}
    except psycopg2.Error as error:
        return {"state": "refused", "error": str(error).strip()[:300]}
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
