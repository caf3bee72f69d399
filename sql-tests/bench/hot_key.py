#!/usr/bin/env python3
"""What does one change cost when its group is large?

    hot_key.py [--binary PATH] [--rows 1000000]

A million rows under one key, in views of min and max, of the first ten rows and of count(DISTINCT); then rows are deleted and inserted, and
each view is read. Target: at least 20,000 deletes and inserts a second per view. Then a dimension row that matches --facts fact rows changes:
memory must stay within the budget, and a DROP on the way must take less than a second.
"""
import argparse, time

from servers import Millpond

VIEWS = {
    "min and max": "SELECT k, min(v), max(v) FROM t GROUP BY k",
    "first ten": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS n FROM t) AS x WHERE n <= 10",
    "count(DISTINCT)": "SELECT k, count(DISTINCT v) FROM t GROUP BY k",
}


def hot_keys(binary: str, rows: int) -> None:
    for name, query in VIEWS.items():
        server = Millpond(binary, "--parallelism", "2")
        try:
            session = server.connect().cursor()
            session.execute("SET read_timeout = '300s'")
            session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, k INT, v BIGINT)")
            session.execute(f"CREATE MATERIALIZED VIEW w AS {query}")
            session.execute(f"INSERT INTO t SELECT g, 1, (g * 7919) % 1000003 FROM generate_series(1::bigint, {rows}) AS g")
            session.execute("SELECT count(*) FROM w")
            changes, began = 0, time.monotonic()
            # The greatest and least values go first, and come again.
            for _ in range(3):
                session.execute("DELETE FROM t WHERE v > 970000 OR v < 30000")
                changes += session.rowcount
                session.execute("SELECT count(*) FROM w")
                session.fetchall()
                session.execute(f"INSERT INTO t SELECT g, 1, (g * 7919) % 1000003 FROM generate_series(1::bigint, {rows}) AS g "
                                "WHERE (g * 7919) % 1000003 > 970000 OR (g * 7919) % 1000003 < 30000")
                changes += session.rowcount
                session.execute("SELECT count(*) FROM w")
                session.fetchall()
            seconds = time.monotonic() - began
            print(f"{name}: {changes / seconds:,.0f} changes a second under one key of {rows:,} rows (target 20,000)")
        finally:
            server.stop()


def dimension(binary: str, facts: int) -> None:
    server = Millpond(binary, "--parallelism", "2", "--memory-limit", str(1 << 30))
    try:
        session = server.connect().cursor()
        session.execute("SET read_timeout = '600s'")
        session.execute("CREATE TABLE dimension (k INT PRIMARY KEY, name TEXT)")
        session.execute("CREATE TABLE fact (id BIGINT PRIMARY KEY, k INT)")
        session.execute("INSERT INTO dimension VALUES (1, 'before')")
        for start in range(0, facts, 500_000):
            session.execute("INSERT INTO fact SELECT g, 1 FROM generate_series(%s::bigint, %s::bigint) AS g", (start + 1, min(facts, start + 500_000)))
        session.execute("CREATE MATERIALIZED VIEW joined AS SELECT fact.id, name FROM fact JOIN dimension ON fact.k = dimension.k")
        before = server.memory_mib()
        began = time.monotonic()
        session.execute("UPDATE dimension SET name = 'after'")
        session.execute("SELECT count(*) FROM joined WHERE name = 'after'")
        assert session.fetchone()[0] == facts
        print(f"one dimension row that matches {facts:,} facts: {time.monotonic() - began:.1f} s, "
              f"memory {before:.0f} MiB before, {server.peak_memory_mib():.0f} MiB at most")
        session.execute("UPDATE dimension SET name = 'once more'")
        time.sleep(0.3)
        began = time.monotonic()
        session.execute("DROP MATERIALIZED VIEW joined")
        print(f"DROP in the middle of it: {time.monotonic() - began:.2f} s (target 1 s)")
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--facts", type=int, default=3_000_000)
    arguments = parser.parse_args()
    hot_keys(arguments.binary, arguments.rows)
    dimension(arguments.binary, arguments.facts)


if __name__ == "__main__":
    main()
