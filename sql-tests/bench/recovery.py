#!/usr/bin/env python3
"""kill -9 with much operator state: how soon are there answers, how soon is all caught up?

    recovery.py [--binary PATH] [--gigabytes 1]

A source of random rows feeds an aggregate by a wide key until its job holds that much state. Then the server is killed and started again. Targets
with 1 GB: a read with read_freshness = 'any' answers within 2 s, all jobs have caught up within 15 s. After that, while the source goes on, the
job is told to go on with four subtasks, then with one; the pause is the longest time in which the view saw no new epoch (target 1 s).
"""
import argparse, time

import psycopg2

from servers import Millpond

STATE = "SELECT coalesce(sum(state_bytes), 0) FROM millpond.jobs WHERE kind = 'view'"


def rescale(server: Millpond, parallelism: int) -> None:
    watcher = server.connect().cursor()
    watcher.execute("SELECT count(*) FROM millpond.recoveries WHERE cause = 'alter'")
    before = watcher.fetchone()[0]
    server.sql(f"ALTER MATERIALIZED VIEW notes SET PARALLELISM {parallelism}")
    began = moved = time.monotonic()
    pause, epoch, done = 0.0, None, None
    # A little longer than it takes, so that what follows is seen too.
    while done is None or time.monotonic() < done + 2:
        watcher.execute("SELECT epoch, (SELECT count(*) FROM millpond.recoveries WHERE cause = 'alter' AND caught_up_ms IS NOT NULL) "
                        "FROM millpond.jobs WHERE name = 'notes'")
        now, (seen, recoveries) = time.monotonic(), watcher.fetchone()
        if seen != epoch:
            pause, moved, epoch = max(pause, now - moved), now, seen
        if recoveries > before and done is None:
            done = now
        assert now - began < 120, "the job does not go on"
    print(f"parallelism {parallelism}: in effect after {done - began:.1f} s, no new epoch for {pause:.2f} s at most (target 1 s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--rate", type=int, default=60_000)
    arguments = parser.parse_args()
    server = Millpond(arguments.binary, "--parallelism", "2")
    try:
        server.sql("CREATE SOURCE orders (id BIGINT, customer BIGINT, note TEXT) WITH (connector = 'datagen', "
                   f"rows_per_second = {arguments.rate}, \"fields.id.kind\" = 'sequence', \"fields.id.start\" = 1, \"fields.id.end\" = 1000000000, "
                   "\"fields.customer.min\" = 1, \"fields.customer.max\" = 100000000, \"fields.note.length\" = 100)")
        server.sql("CREATE MATERIALIZED VIEW notes AS SELECT customer, max(note) AS note, count(*) AS orders FROM orders GROUP BY customer")
        began = time.monotonic()
        while server.value(STATE) < arguments.gigabytes * 1e9 and time.monotonic() - began < 600:
            time.sleep(0.5)
        before = float(server.value(STATE))
        print(f"{before / 1e9:.2f} GB of state after {time.monotonic() - began:.0f} s, {server.memory_mib():.0f} MiB of memory")
        rows = server.value("SET read_freshness = 'any'; SELECT count(*) FROM notes")
        server.kill()
        killed = time.monotonic()
        server.start()
        print(f"first connection after {time.monotonic() - killed:.2f} s")
        reader = server.connect().cursor()
        reader.execute("SET read_freshness = 'any'")
        reader.execute("SELECT orders FROM notes LIMIT 1")
        assert reader.fetchone(), "the view is empty"
        print(f"first answer after {time.monotonic() - killed:.2f} s (target 2 s)")
        while True:
            reader.execute("SELECT count(*) FROM millpond.jobs WHERE state <> 'running' OR lag_ms > 1000")
            if reader.fetchone()[0] == 0:
                break
            time.sleep(0.05)
        print(f"caught up after {time.monotonic() - killed:.2f} s (target 15 s)")
        after = server.value("SELECT count(*) FROM notes")
        assert after >= rows, f"{rows} rows before, {after} after"
        for parallelism in (4, 1, 2):
            rescale(server, parallelism)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
