#!/usr/bin/env python3
"""What does a checkpoint cost: under backpressure, aligned and not, and with much state?

    checkpoint.py [--binary PATH] [--gigabytes 5] [--only backpressure,state]

backpressure: a join of which one input is stalled, with an operator behind it that takes a millisecond a row. A checkpoint that waits for its
barrier takes as long as all that is in its way; one that does not must be complete within 2 s.
state: a checkpoint every second while an aggregate by a wide key, and hop windows, hold and change that much state (target: 99 of 100 within
1.5 s, all that is stored below three times the state).
"""
import argparse, os, pathlib, time

from servers import Millpond, quantile

CHECKPOINTS = ("SELECT duration_ms, kind, coalesce(in_flight_bytes, 0), log_bytes, materialization_bytes FROM millpond.checkpoints "
               "WHERE job = '{job}' AND epoch > {after} ORDER BY epoch")


def backpressure(binary: str, timeout: str) -> None:
    server = Millpond(binary, "--parallelism", "2")
    try:
        server.sql("CREATE SOURCE fast (id BIGINT, k INT) WITH (connector = 'datagen', rows_per_second = 20000, \"fields.id.kind\" = 'sequence', "
                   "\"fields.id.start\" = 1, \"fields.id.end\" = 1000000000, \"fields.k.min\" = 1, \"fields.k.max\" = 1000)")
        server.sql("CREATE TABLE dimension (k INT PRIMARY KEY, name TEXT)")
        server.sql("INSERT INTO dimension SELECT g, 'name ' || g FROM generate_series(1, 1000) AS g")
        server.sql("CREATE MATERIALIZED VIEW slow WITH (checkpoint_interval = '2s', "
                   f"aligned_checkpoint_timeout = '{timeout}') AS SELECT k, count(*) AS n, max(waited) AS waited FROM ("
                   "SELECT fast.k, coalesce(pg_sleep(0.001)::text, '') AS waited FROM fast JOIN dimension ON fast.k = dimension.k) AS x GROUP BY k")
        began = time.monotonic()
        while time.monotonic() - began < 60:
            time.sleep(1)
        found = server.sql(CHECKPOINTS.format(job="slow", after=1))
        durations = [duration for duration, *_ in found]
        print(f"aligned_checkpoint_timeout = {timeout}: {len(found)} checkpoints in 60 s"
              + (f", median {quantile(durations, .5) / 1e3:.2f} s, longest {max(durations) / 1e3:.2f} s" if durations else "")
              + f", in flight at most {max((row[2] for row in found), default=0) / 1e3:.0f} kB")
    finally:
        server.stop()


def stored_bytes(folder: pathlib.Path) -> int:
    return sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file())


def state(binary: str, gigabytes: float) -> None:
    server = Millpond(binary, "--parallelism", "2", "--checkpoint-interval-ms", "1000")
    try:
        server.sql("CREATE SOURCE orders (id BIGINT, customer BIGINT, note TEXT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '1 second') "
                   "WITH (connector = 'datagen', rows_per_second = 60000, \"fields.id.kind\" = 'sequence', \"fields.id.start\" = 1, "
                   "\"fields.id.end\" = 1000000000, \"fields.customer.min\" = 1, \"fields.customer.max\" = 100000000, \"fields.note.length\" = 100)")
        server.sql("CREATE MATERIALIZED VIEW notes AS SELECT customer, max(note) AS note, count(*) AS orders FROM orders GROUP BY customer")
        began = time.monotonic()
        held = 0.0
        while held < gigabytes * 1e9 and time.monotonic() - began < 1200:
            time.sleep(1)
            held = float(server.value("SELECT state_bytes FROM millpond.jobs WHERE name = 'notes'"))
        found = server.sql(CHECKPOINTS.format(job="notes", after=1))
        durations = [duration for duration, *_ in found]
        kept = stored_bytes(pathlib.Path(server.directory.name) / "data" / "objects")
        print(f"{held / 1e9:.2f} GB of state after {time.monotonic() - began:.0f} s: {len(found)} checkpoints, "
              f"p50 {quantile(durations, .5):.0f} ms, p99 {quantile(durations, .99):.0f} ms (target 1500 ms), stored {kept / max(held, 1):.2f} x "
              f"the state (target 3), memory {server.memory_mib():.0f} MiB")
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--gigabytes", type=float, default=5)
    parser.add_argument("--only", default="backpressure,state")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    if "backpressure" in only:
        for timeout in ("1s", "600s"):
            backpressure(arguments.binary, timeout)
    if "state" in only:
        state(arguments.binary, arguments.gigabytes)


if __name__ == "__main__":
    main()
