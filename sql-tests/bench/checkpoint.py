#!/usr/bin/env python3
"""What does a checkpoint cost: under backpressure, aligned and not, and with much state?

    checkpoint.py [--binary PATH] [--gigabytes 5] [--only backpressure,state,windows]

backpressure: a join of which one input stands still for a minute (a million rows come at once, and each takes a sixteenth of a millisecond before
it), with an operator behind it that takes half a millisecond a row. A checkpoint that waits for its barrier takes as long as all that is in its
way; one that does not must be complete within 2 s, with in-flight bytes in its manifest.
state: a checkpoint every second while an aggregate by a wide key holds and changes that much state, first by the log of changes, then with the whole
state written out every time (recovery_target = 1 ms). Target: 99 of 100 within 1.5 s, all that is stored below three times the state.
windows: the same for hop windows, whose state comes and goes.
"""
import argparse, pathlib, threading, time

import psycopg2.errors

from servers import Millpond, quantile

CHECKPOINTS = ("SELECT epoch, duration_ms, mode, in_flight_bytes, bytes, stored_bytes, materialization_bytes, error FROM millpond.checkpoints "
               "WHERE job = '{job}' AND epoch > {after} ORDER BY epoch")


# Bytes of which a digest takes about that long.
MILLISECOND = 300_000


def backpressure(binary: str, timeout: str) -> None:
    server = Millpond(binary, "--parallelism", "2")
    try:
        server.sql("CREATE SOURCE fast (id BIGINT, k INT) WITH (connector = 'datagen', rows_per_second = 20000, \"fields.id.kind\" = 'sequence', "
                   "\"fields.id.start\" = 1, \"fields.id.end\" = 1000000000, \"fields.k.min\" = 1, \"fields.k.max\" = 1000)")
        server.sql("CREATE TABLE dimension (k INT PRIMARY KEY, name TEXT)")
        server.sql("INSERT INTO dimension SELECT g, 'name ' || g FROM generate_series(1, 1000) AS g")
        server.sql("CREATE MATERIALIZED VIEW slow WITH (background = true, checkpoint_interval = '2s', "
                   f"aligned_checkpoint_timeout = '{timeout}') AS SELECT k, count(*) AS n, max(digest) AS digest FROM ("
                   f"SELECT fast.k, md5(repeat(fast.id || stalled.digest, {MILLISECOND // 2 // 40})) AS digest FROM fast JOIN "
                   f"(SELECT k, md5(repeat(name, {MILLISECOND // 16 // 8})) AS digest FROM dimension) AS stalled ON fast.k = stalled.k) AS x GROUP BY k")
        while server.value("SELECT count(*) FROM millpond.jobs WHERE state <> 'running'"):
            time.sleep(0.2)
        after = server.value("SELECT coalesce(max(epoch), 0) FROM millpond.checkpoints")
        server.sql("INSERT INTO dimension SELECT g, 'name ' || g FROM generate_series(1001, 1000000) AS g")
        began = time.monotonic()
        slowest = {}
        while time.monotonic() - began < 60:
            for name, seconds in others(server).items():
                slowest[name] = max(slowest.get(name, 0), seconds)
            time.sleep(1)
        found = server.sql(CHECKPOINTS.format(job="slow", after=after))
        taken = [row for row in found if row[7] is None]
        durations = [row[1] for row in taken]
        print(f"aligned_checkpoint_timeout = {timeout}: {len(taken)} checkpoints in 60 s"
              + (f", median {quantile(durations, .5) / 1e3:.2f} s, longest {max(durations) / 1e3:.2f} s (target 2 s)" if durations else "")
              + f", {sum(row[2] == 'unaligned' for row in taken)} unaligned, in flight at most {max((row[3] for row in taken), default=0) / 1e3:.0f} kB",
              flush=True)
        print("  meanwhile, the slowest of each: " + ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in slowest.items())
              + " (target 1 s)", flush=True)
    finally:
        server.stop()


def others(server: Millpond) -> dict[str, float]:
    """How long statements take that have nothing to do with the job that is stuck, in seconds."""
    statements = {
        "CREATE TABLE": "CREATE TABLE other (k INT PRIMARY KEY)",
        "CREATE VIEW": "CREATE MATERIALIZED VIEW beside AS SELECT count(*) AS n FROM other",
        "INSERT": "INSERT INTO other VALUES (1)",
        "SELECT": "SELECT n FROM beside",
        "DROP VIEW": "DROP MATERIALIZED VIEW beside",
        "DROP TABLE": "DROP TABLE other",
    }
    taken = {}
    for name, statement in statements.items():
        began = time.monotonic()
        server.sql(statement)
        taken[name] = time.monotonic() - began
    connection = server.connect()
    threading.Timer(0.2, connection.cancel).start()
    began = time.monotonic()
    try:
        connection.cursor().execute("SELECT pg_sleep(30)")
    except psycopg2.errors.QueryCanceled:
        taken["cancel"] = time.monotonic() - began - 0.2
    return taken


def watch(server: Millpond, job: str, seconds: float) -> list[tuple]:
    """The checkpoints that the job has completed in the next `seconds`. The relation keeps the last ones only, so it is asked now and then."""
    after = server.value(f"SELECT coalesce(max(epoch), 0) FROM millpond.checkpoints WHERE job = '{job}'")
    seen, began = {}, time.monotonic()
    while time.monotonic() - began < seconds:
        time.sleep(5)
        for row in server.sql(CHECKPOINTS.format(job=job, after=after)):
            seen[row[0]] = row
    return [seen[epoch] for epoch in sorted(seen)]


def report(server: Millpond, title: str, job: str, found: list[tuple]) -> None:
    state = float(server.value(f"SELECT state_bytes FROM millpond.jobs WHERE name = '{job}'"))
    files = pathlib.Path(server.directory.name) / "data" / "objects"
    kept = sum(entry.stat().st_size for entry in files.rglob("*") if entry.is_file())
    durations = [row[1] for row in found if row[7] is None]
    errors = sum(row[7] is not None for row in found)
    if not durations:
        print(f"{title}: {state / 1e9:.2f} GB of state, no checkpoint", flush=True)
        return
    print(f"{title}: {state / 1e9:.2f} GB of state, {len(durations)} checkpoints ({errors} failed), p50 {quantile(durations, .5):.0f} ms, "
          f"p99 {quantile(durations, .99):.0f} ms, longest {max(durations):.0f} ms (target: p99 1500 ms), uploaded "
          f"{sum(row[4] for row in found) / len(durations) / 1e6:.1f} MB each ({sum(row[6] for row in found) / 1e6:.0f} MB of it materializations in all), "
          f"stored {kept / max(state, 1):.2f} x the state (target 3), memory {server.memory_mib():.0f} MiB", flush=True)


def compare(binary: str, title: str, view: str, rate: int, note: int, gigabytes: float) -> None:
    server = Millpond(binary, "--parallelism", "2", "--checkpoint-interval-ms", "1000")
    try:
        server.sql("CREATE SOURCE orders (id BIGINT, customer BIGINT, note TEXT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '1 second') "
                   f"WITH (connector = 'datagen', rows_per_second = {rate}, \"fields.id.kind\" = 'sequence', \"fields.id.start\" = 1, "
                   "\"fields.id.end\" = 1000000000, \"fields.customer.min\" = 1, \"fields.customer.max\" = 100000000, "
                   f"\"fields.note.length\" = {note})")
        server.sql(f"CREATE MATERIALIZED VIEW held AS {view}")
        began, held, seen = time.monotonic(), 0.0, []
        while held < gigabytes * 1e9 and time.monotonic() - began < 900:
            seen += watch(server, "held", 10)
            held = float(server.value("SELECT state_bytes FROM millpond.jobs WHERE name = 'held'"))
        report(server, f"{title}, growing for {time.monotonic() - began:.0f} s", "held", seen)
        report(server, f"{title}, by the log", "held", watch(server, "held", 120))
        server.sql("ALTER MATERIALIZED VIEW held SET (recovery_target = '1ms')")
        report(server, f"{title}, written out every time", "held", watch(server, "held", 60))
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--gigabytes", type=float, default=5)
    parser.add_argument("--only", default="backpressure,state,windows")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    if "backpressure" in only:
        for timeout in ("1s", "600s"):
            backpressure(arguments.binary, timeout)
    if "state" in only:
        compare(arguments.binary, "aggregate", "SELECT customer, max(note) AS note, count(*) AS orders FROM orders GROUP BY customer",
                30_000, 400, arguments.gigabytes)
    if "windows" in only:
        compare(arguments.binary, "hop windows",
                "SELECT customer, window_start, max(note) AS note FROM HOP(orders, at, INTERVAL '20 seconds', INTERVAL '1 minute') "
                "GROUP BY customer, window_start", 10_000, 200, arguments.gigabytes / 10)


if __name__ == "__main__":
    main()
