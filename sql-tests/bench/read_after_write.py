#!/usr/bin/env python3
"""One row is inserted, then a view above the table is read: how long does the read take, which must show the row?

    read_after_write.py [--binary PATH] [--sessions 1,8] [--rounds 1000]

Target: 99 of 100 reads within 50 ms.
"""
import argparse, threading, time

from servers import Millpond, quantile


def session(server: Millpond, number: int, rounds: int, taken: list[float], failures: list[str]) -> None:
    cursor = server.connect().cursor()
    before = 0
    for round in range(rounds):
        cursor.execute("INSERT INTO t VALUES (%s, %s)", (number, round))
        began = time.monotonic()
        cursor.execute("SELECT n FROM v WHERE k = %s", (number,))
        count = cursor.fetchone()[0]
        taken.append(time.monotonic() - began)
        if count != before + 1:
            failures.append(f"session {number} read {count} after {before} and one more")
        before = count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--sessions", default="1,8")
    parser.add_argument("--rounds", type=int, default=1000)
    arguments = parser.parse_args()
    for sessions in map(int, arguments.sessions.split(",")):
        server = Millpond(arguments.binary, "--parallelism", "2")
        try:
            server.sql("CREATE TABLE t (k INT, v INT)")
            server.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n, max(v) AS last FROM t GROUP BY k")
            taken, failures = [], []
            threads = [threading.Thread(target=session, args=(server, number, arguments.rounds, taken, failures)) for number in range(sessions)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert not failures and len(taken) == sessions * arguments.rounds, failures
            print(f"read after write, {sessions} sessions: p50 {quantile(taken, .5) * 1e3:.1f} ms, p99 {quantile(taken, .99) * 1e3:.1f} ms (target 50 ms), "
                  f"worst {max(taken) * 1e3:.1f} ms of {len(taken)} reads")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
