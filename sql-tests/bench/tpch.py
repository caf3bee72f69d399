#!/usr/bin/env python3
"""The 22 queries of TPC-H on Millpond beside DuckDB and DataFusion, over the same Parquet files, in one run, two threads each.

    tpch.py DATA_DIR [--scale 1] [--only q1,q9] [--rounds 3] [--memory-limit 1GB] [--timeout 600] [--binary PATH] [--json FILE]

DATA_DIR gets the files if it has none: one of each table, of --scale GB as CSV. Each query runs once for its answer, which must be DuckDB's,
then --rounds times on each engine in turn; the least time counts, from the statement's text to its last row. peak_memory_mib is the VmHWM of
Millpond's server. Ends with status 1 if an answer is wrong or missing.
"""
import argparse, decimal, json, math, os, pathlib, re, statistics, subprocess, sys, time

import datafusion, duckdb, psycopg2

from servers import Millpond

HERE = pathlib.Path(__file__).resolve().parent
TABLES = ("nation", "region", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
THREADS = 2
# A quotient or an average is a double in DuckDB and a numeric in Millpond.
TOLERANCE = 1e-9


def queries(scale: float) -> dict[str, str]:
    text = (HERE / "tpch/queries.sql").read_text().replace("{fraction}", f"{0.0001 / scale:.10f}")
    found = re.findall(r"^-- (q\d+)\n(.*?)(?=^-- q|\Z)", text, re.M | re.S)
    return {name: query.strip().rstrip(";") for name, query in found}


def make(data: pathlib.Path, scale: float) -> None:
    if (data / "complete").exists():
        return
    print(f"making TPC-H data of scale {scale:g}", flush=True)
    generator = pathlib.Path(sys.executable).parent / "tpchgen-cli"
    data.mkdir(parents=True, exist_ok=True)
    subprocess.run([generator, "parquet", "--scale-factor", f"{scale:g}", "--output-dir", data], check=True)
    (data / "complete").touch()


class Answer:
    def __init__(self, columns: list[str], rows: list[tuple]):
        self.columns, self.rows = columns, rows


class MillpondEngine:
    def __init__(self, data: pathlib.Path, binary: str, memory_limit: str | None, timeout: float):
        options = ["--parallelism", str(THREADS)] + (["--memory-limit", memory_limit] if memory_limit else [])
        self.server, self.timeout, self.connection = Millpond(binary, *options), timeout, None
        for table in TABLES:
            path = data / f"{table}.parquet"
            self.server.sql(f"CREATE SOURCE {table} WITH (connector = 'file', path = '{path}', format = 'parquet', mode = 'bounded')")

    def query(self, text: str) -> Answer:
        if self.connection is None or self.connection.closed:
            if self.server.process.poll() is not None:
                self.server.start()
            self.connection = self.server.connect()
            self.connection.cursor().execute(f"SET statement_timeout = {round(1000 * self.timeout)}")
        cursor = self.connection.cursor()
        cursor.execute(text)
        return Answer([column.name for column in cursor.description], cursor.fetchall())


class DuckDb:
    def __init__(self, data: pathlib.Path):
        self.connection = duckdb.connect(config={"threads": THREADS})
        for table in TABLES:
            self.connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{data / table}.parquet')")

    def query(self, text: str) -> Answer:
        cursor = self.connection.execute(text)
        return Answer([column[0] for column in cursor.description], cursor.fetchall())


class DataFusion:
    def __init__(self, data: pathlib.Path):
        self.context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(THREADS))
        for table in TABLES:
            self.context.register_parquet(table, str(data / f"{table}.parquet"))

    def query(self, text: str) -> None:
        self.context.sql(text).collect()


def is_number(value) -> bool:
    return isinstance(value, (int, float, decimal.Decimal))


def same(ours, theirs) -> bool:
    if isinstance(ours, float) or isinstance(theirs, float):
        return is_number(ours) and is_number(theirs) and math.isclose(ours, theirs, rel_tol=TOLERANCE)
    return ours == theirs


def in_any_order(rows: list[tuple]) -> list[tuple]:
    """Sorted by what is no number first, so that rows which differ within the tolerance get the same place in both answers."""
    return sorted(rows, key=lambda row: ([str(value) for value in row if not is_number(value)], [value for value in row if is_number(value)]))


def difference(query: str, ours: Answer, theirs: Answer) -> str | None:
    """What is wrong with our answer: its rows as a bag, and what they are ordered by row for row. Rows that tie may come in any order."""
    if len(ours.rows) != len(theirs.rows):
        return f"{len(ours.rows)} rows instead of {len(theirs.rows)}"
    for mine, right in zip(in_any_order(ours.rows), in_any_order(theirs.rows)):
        if len(mine) != len(right) or not all(map(same, mine, right)):
            return f"{mine} instead of {right}"
    order = re.search(r"ORDER BY ([^()]+?)(?:LIMIT \d+)?\s*$", query)
    keys = [key.split()[0] for key in order[1].split(",")] if order else []
    places = [(key, ours.columns.index(key), theirs.columns.index(key)) for key in keys]
    for number, (mine, right) in enumerate(zip(ours.rows, theirs.rows)):
        for key, place, right_place in places:
            if not same(mine[place], right[right_place]):
                return f"row {number + 1} has {key} {mine[place]} instead of {right[right_place]}"
    return None


def measure(engines: dict, query: str, rounds: int) -> dict:
    """Times of one query on each engine, in seconds, and what is wrong with Millpond's answer. The first round warms up."""
    line, answers = {}, {}
    times: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(1 + rounds):
        for name in list(times):
            begin = time.monotonic()
            try:
                answers[name] = engines[name].query(query)
            except psycopg2.Error as error:
                line["wrong"] = " ".join(str(error).split())[:300] or type(error).__name__
                del times[name]
                continue
            if number > 0:
                times[name].append(time.monotonic() - begin)
    for name, seconds in times.items():
        line[name] = {"best": round(min(seconds), 4), "median": round(statistics.median(seconds), 4), "all": [round(value, 4) for value in seconds]}
    if "millpond" in times and (wrong := difference(query, answers["millpond"], answers["duckdb"])):
        line["wrong"] = wrong
    return line


def text_of(name: str, line: dict) -> str:
    best = {engine: line[engine]["best"] for engine in ("millpond", "duckdb", "datafusion") if engine in line}
    ours = best.get("millpond")
    ratios = [f"{ours / best[rival]:12.2f}" if ours else f"{'':12}" for rival in ("duckdb", "datafusion")]
    seconds = [f"{best[engine]:12.3f}" if engine in best else f"{'':12}" for engine in ("millpond", "duckdb", "datafusion")]
    return f"{name:5}{''.join(seconds + ratios)}  {line.get('wrong', 'equal')}"


def summarize(results: dict[str, dict], engines: list[str]) -> None:
    complete = [line for line in results.values() if all(engine in line for engine in engines)]
    if not complete:
        return
    total = {engine: sum(line[engine]["best"] for line in complete) for engine in engines}
    print(text_of("total", {engine: {"best": seconds} for engine, seconds in total.items()} | {"wrong": f"of {len(complete)} queries"}))
    for rival in engines[1:]:
        ratios = sorted((line["millpond"]["best"] / line[rival]["best"], name) for name, line in results.items() if line in complete)
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios))
        print(f"millpond's time over {rival}'s: {total['millpond'] / total[rival]:.2f} in total, geometric mean {mean:.2f}, "
              f"worst {ratios[-1][0]:.2f} ({ratios[-1][1]})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-limit")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    make(data, arguments.scale)
    # Whatever an engine starts beside its workers, and the client, shares the cores of these.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    only = set(filter(None, arguments.only.split(",")))
    millpond = MillpondEngine(data, arguments.binary, arguments.memory_limit, arguments.timeout)
    try:
        engines = {"millpond": millpond, "duckdb": DuckDb(data), "datafusion": DataFusion(data)}
        print(f"scale {arguments.scale:g}, DuckDB {duckdb.__version__}, DataFusion {datafusion.__version__}, load {os.getloadavg()[0]:.1f}; "
              f"seconds, Millpond's time over the others', answer")
        print(f"{'':5}" + "".join(f"{title:>12}" for title in ("millpond", "duckdb", "datafusion", "/duckdb", "/datafusion")), flush=True)
        results = {}
        for name, query in queries(arguments.scale).items():
            if not only or name in only:
                results[name] = measure(engines, query, arguments.rounds)
                print(text_of(name, results[name]), flush=True)
        summarize(results, list(engines))
        peak = round(millpond.server.peak_memory_mib())
        print(f"peak_memory_mib {peak}, load {os.getloadavg()[0]:.1f}")
    finally:
        millpond.server.stop()
    if arguments.json:
        json.dump({"scale": arguments.scale, "peak_memory_mib": peak, "queries": results}, open(arguments.json, "w"), indent=1)
    if any("wrong" in line for line in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
