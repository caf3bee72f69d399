#!/usr/bin/env python3
"""Buffer debloating: what it spares a checkpoint under backpressure, and what it costs without.

    debloat.py [--binary PATH] [--events 3000000] [--pairs 5] [--skip checkpoints|throughput]

A source without a limit feeds one, two or three joins, each behind an exchange by another column, and a slow function behind the last. The view's
checkpoints are aligned: their barriers wait at every exchange for what is before them, which is what `buffer_debloat_target` bounds. The table shows
the median duration for each target and number of exchanges; about exchanges x target is expected, once more for the channel of the scan.

Then a view that keeps up reads the bids of an auction site, with and without debloating in turn. The median of the paired runs' ratios should be
above 0.9.
"""
import argparse, statistics, time

from servers import Millpond

TARGETS = ["100ms", "500ms", "1s", "0"]
PATIENCE = 300


def chain(exchanges: int) -> str:
    """Joins by one column after the other, and a function of all that takes a row about a fifth of a millisecond."""
    tables = range(1, exchanges + 1)
    joins = " ".join(f"JOIN side{n} t{n} ON t{n}.k = s.k{n}" for n in tables)
    notes = " || ".join(["s.note"] + [f"t{n}.note" for n in tables])
    return f"SELECT s.id, md5(repeat({notes}, {6000 // (exchanges + 1)})) AS digest FROM rows s {joins}"


def full(server: Millpond) -> tuple[int, float]:
    """Waits until the channels hold no more than before, and answers how much, and what the last exchange's consumers take in a second."""
    held, grew, began = 0, time.monotonic(), time.monotonic()
    while time.monotonic() < grew + 4 and time.monotonic() < began + PATIENCE:
        now = int(server.value("SELECT coalesce(sum(buffered_rows), 0) FROM millpond.exchanges"))
        if now > 1.05 * held:
            held, grew = now, time.monotonic()
        time.sleep(0.25)
    now = int(server.value("SELECT coalesce(sum(buffered_rows), 0) FROM millpond.exchanges"))
    return now, float(server.value("SELECT rows_per_second FROM millpond.jobs WHERE name = 'slow'"))


def durations(server: Millpond, count: int) -> list[float]:
    """Of the next checkpoints, in seconds, or fewer if they take too long."""
    last = "SELECT coalesce(max(epoch), 0) FROM millpond.checkpoints WHERE job = 'slow'"
    first, began = server.value(last), time.monotonic()
    while True:
        found = server.sql(f"SELECT duration_ms / 1000, mode FROM millpond.checkpoints WHERE job = 'slow' AND epoch > {first}")
        assert all(mode == "aligned" for _, mode in found), found
        # The first one may have begun before.
        if len(found) > count or time.monotonic() > began + PATIENCE:
            return [float(duration) for duration, _ in found[1:] or found]
        time.sleep(0.1)


def under_backpressure(binary: str) -> None:
    print(f"{'exchanges':>9} {'target':>7} {'rows/s':>8} {'rows held':>10} {'checkpoint s':>13} {'worst s':>8}")
    for exchanges in (1, 2, 3):
        for target in TARGETS:
            server = Millpond(binary, "--parallelism", "2")
            try:
                server.sql("CREATE SOURCE rows (id BIGINT, k1 BIGINT, k2 BIGINT, k3 BIGINT, note TEXT) WITH (connector = 'datagen', "
                           "rows_per_second = 0, \"fields.id.kind\" = 'sequence', \"fields.id.start\" = 1, \"fields.id.end\" = 1000000000, "
                           + ", ".join(f"\"fields.k{n}.min\" = 1, \"fields.k{n}.max\" = 1000" for n in (1, 2, 3))
                           + ", \"fields.note.length\" = 10)")
                for n in range(1, exchanges + 1):
                    server.sql(f"CREATE TABLE side{n} (k BIGINT PRIMARY KEY, note TEXT)")
                    server.sql(f"INSERT INTO side{n} SELECT x, 'note ' || x FROM generate_series(1, 1000) AS g(x)")
                server.sql(f"CREATE MATERIALIZED VIEW slow WITH (buffer_debloat_target = '{target}', aligned_checkpoint_timeout = '1h', "
                           f"checkpoint_interval = '1s') AS {chain(exchanges)}")
                held, rate = full(server)
                found = durations(server, 1 if target == "0" else 5)
                worst, median = (max(found), statistics.median(found)) if found else (float("nan"), float("nan"))
                shown = "off" if target == "0" else target
                print(f"{exchanges:>9} {shown:>7} {rate:>8.0f} {held:>10} {median:>13.2f} {worst:>8.2f}"
                      + ("" if found else f"   none within {PATIENCE} s"), flush=True)
            finally:
                server.stop()


def run(binary: str, target: str, events: int) -> float:
    """Rows per second of a view that keeps up."""
    server = Millpond(binary, "--parallelism", "2")
    try:
        server.sql("CREATE TABLE side (k BIGINT PRIMARY KEY, g BIGINT)")
        server.sql("INSERT INTO side SELECT x, x % 100 FROM generate_series(0, 999) AS g(x)")
        server.sql(f"CREATE SOURCE bids WITH (connector = 'nexmark', table = 'bid', events = '{events}')")
        began = time.monotonic()
        server.sql(f"CREATE MATERIALIZED VIEW fast WITH (buffer_debloat_target = '{target}') AS "
                   "SELECT t.g, count(*) AS bids, max(b.price) AS price FROM bids b JOIN side t ON t.k = b.auction % 1000 GROUP BY t.g")
        rows = int(server.value("SELECT sum(bids) FROM fast"))
        return rows / (time.monotonic() - began)
    finally:
        server.stop()


def without_backpressure(binary: str, events: int, pairs: int) -> None:
    ratios = []
    for pair in range(pairs):
        order = ["1s", "0"] if pair % 2 == 0 else ["0", "1s"]
        rates = {target: run(binary, target, events) for target in order}
        ratios.append(rates["1s"] / rates["0"])
        print(f"pair {pair + 1}: {rates['1s'] / 1e3:.0f} thousand rows/s debloated, {rates['0'] / 1e3:.0f} with fixed buffers", flush=True)
    print(f"debloated to fixed, median of {pairs} pairs: {statistics.median(ratios):.3f} (target: above 0.9)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--events", type=int, default=3_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--skip", choices=["checkpoints", "throughput"])
    arguments = parser.parse_args()
    if arguments.skip != "checkpoints":
        under_backpressure(arguments.binary)
    if arguments.skip != "throughput":
        without_backpressure(arguments.binary, arguments.events, arguments.pairs)


if __name__ == "__main__":
    main()
