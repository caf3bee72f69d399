#!/usr/bin/env python3
"""How old is the newest event that a reader sees?

    freshness.py [--binary PATH] [--rate 50000] [--seconds 30]

Nexmark's events at a constant rate, event time = wall clock, feed q5, q9 and a view of the newest date_time. One statement reads all three;
freshness is the time at which its answer is here less the newest event time in it. Targets: p50 below 150 ms, p99 below 300 ms.
"""
import argparse, datetime, pathlib, time

from nexmark import queries
from servers import Millpond, quantile

# A row of q9 by its key: counting over half a million rows fifty times a second would measure scans.
READ = "SELECT (SELECT newest FROM latest), (SELECT count(*) FROM q5), (SELECT max(price) FROM q9 WHERE id = 1001)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    server = Millpond(arguments.binary, "--parallelism", "2")
    try:
        for table in ("person", "auction", "bid"):
            server.sql(f"CREATE SOURCE {table} (WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') "
                       f"WITH (connector = 'nexmark', table = '{table}', rate = {arguments.rate}, event_time = 'wall_clock')")
        texts = queries()
        server.sql("CREATE MATERIALIZED VIEW latest AS SELECT max(date_time) AS newest FROM bid")
        server.sql(f"CREATE MATERIALIZED VIEW q5 AS {texts['q5']}")
        server.sql(f"CREATE MATERIALIZED VIEW q9 AS {texts['q9']}")
        reader = server.connect().cursor()
        ages, latencies = [], []
        end = time.monotonic() + 5 + arguments.seconds
        while time.monotonic() < end:
            asked = time.time()
            reader.execute(READ)
            newest = reader.fetchone()[0]
            here = time.time()
            if time.monotonic() > end - arguments.seconds:
                ages.append(1000 * (here - newest.replace(tzinfo=datetime.timezone.utc).timestamp()))
                latencies.append(1000 * (here - asked))
            time.sleep(max(0.0, 0.02 - (here - asked)))
        for name, values in (("freshness", ages), ("latency of the read", latencies)):
            print(f"{name}: p50 {quantile(values, 0.5):.0f} ms, p99 {quantile(values, 0.99):.0f} ms, worst {max(values):.0f} ms of {len(values)} reads")
        print(f"peak memory {server.peak_memory_mib():.0f} MiB")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
