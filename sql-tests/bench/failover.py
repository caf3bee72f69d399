#!/usr/bin/env python3
"""How soon is there output after a failure: of the process, of a job, of one subtask; beside Flink?

    failover.py [--binary PATH] [--gigabytes 1] [--rate 10000] [--rounds 3] [--only local,store,flink]

An aggregate by a wide key, with that much state, parallelism 2, a checkpoint every 10 s. Both engines run the same query over the same rows: the first
ones from the same CSV files, then, once these are read, `rate` more a second, which change groups at random: for Millpond as new lines, for Flink,
which reads no file that grows, as new files. Each failure comes five seconds after a checkpoint, so that there are as many rows to be taken again.

Output is, for Millpond, an answer that has a row written after the failure was ordered: whoever reads the view sees no older one twice. For Flink it
is the first row that comes out of a restarted task of the aggregate, though the sink had it before; the first one that is new is told too. Flink 2.3
keeps its state in RocksDB, with incremental checkpoints, local recovery and no pause before a restart; a function behind the aggregate throws.

Milliseconds count from the order to fail. Flink's count from when its function throws, so that what is compared with them counts from when the failure
of the subtask is detected.

local: kill -9; one subtask of the aggregate, exactly-once; the whole job, by a second failure at the same epoch; one subtask, approximate.
store: kill -9 with checkpoints in an S3 store, with the state's files linked on the local disk and once more without them.
Targets with 1 GB: 500 ms for one subtask, its peers not restarted; an answer within 2 s of kill -9, caught up within 15 s; output five times as
soon as Flink's.
"""
import argparse, json, os, pathlib, shutil, statistics, subprocess, tempfile, threading, time, urllib.request

import flink
import orders
from servers import Millpond, ObjectServer, free_port

HERE = pathlib.Path(__file__).resolve().parent
QUERY = "SELECT customer, max(note) AS note, count(*) AS orders, max(id) AS newest FROM orders GROUP BY customer"
CHECKPOINT_SECONDS = 10
AFTER_CHECKPOINT_SECONDS = 5
PATIENCE_SECONDS = 900
SOON_SECONDS = 30
STEPS = ("detected", "cancelled", "restored", "replayed", "caught up")
ALONE, WHOLE = "cause = 'failure' AND scope = 'subtask'", "cause = 'failure' AND scope = 'job'"


def until(what: str, found, every: float = 0.1):
    """What `found` answers as soon as it answers something."""
    began = time.monotonic()
    while True:
        answer = found()
        if answer:
            return answer
        assert time.monotonic() < began + PATIENCE_SECONDS, f"{what} does not come"
        time.sleep(every)


class Rows:
    """A folder with the first rows, and the feed that goes on with them."""

    def __init__(self, arguments, first: pathlib.Path, growing: bool):
        self.folder = tempfile.TemporaryDirectory(prefix="rows-of-its-own-", dir=first.parent)
        shutil.copytree(first, self.folder.name, copy_function=os.link, dirs_exist_ok=True)
        self.feed = orders.Feed(pathlib.Path(self.folder.name), arguments.rows, arguments.rate, growing)

    def size(self) -> int:
        return sum(file.stat().st_size for file in pathlib.Path(self.folder.name).iterdir())

    def end(self) -> None:
        self.feed.end()
        self.folder.cleanup()


class Pond:
    """A Millpond server with the view."""

    def __init__(self, arguments, first: pathlib.Path, *options: str, environment: dict[str, str] = {}):
        self.rows = Rows(arguments, first, growing=True)
        self.feed = self.rows.feed
        self.server = Millpond(arguments.binary, "--parallelism", "2", "--checkpoint-interval-ms", str(1000 * CHECKPOINT_SECONDS), *options,
                               environment=environment)

    def end(self) -> None:
        self.rows.end()
        self.server.stop()

    def load(self) -> None:
        server, began = self.server, time.monotonic()
        server.sql(f"CREATE SOURCE orders ({orders.COLUMNS}) WITH (connector = 'file', path = '{self.rows.folder.name}', format = 'csv', mode = 'watch')")
        server.sql(f"CREATE MATERIALIZED VIEW held WITH (recovery = 'exactly_once') AS {QUERY}")
        self.await_rows()
        self.feed.start()
        # So that a restart finds the state written out, not its changes only.
        server.sql("ALTER MATERIALIZED VIEW held SET (recovery_target = '1ms')")
        until("a materialization", lambda: server.value(
            "SELECT coalesce(bool_or(stored_bytes > 2 * replay_bytes), false) FROM millpond.checkpoints WHERE job = 'held' AND error IS NULL"), 1)
        server.sql("ALTER MATERIALIZED VIEW held RESET (recovery_target)")
        print(f"millpond: {float(self.of_job('state_bytes')) / 1e9:.3f} GB of state after {time.monotonic() - began:.0f} s, "
              f"{server.memory_mib():.0f} MiB of memory", flush=True)

    def of_job(self, column: str):
        return self.server.value(f"SELECT {column} FROM millpond.jobs WHERE name = 'held'")

    def await_checkpoint(self) -> None:
        newest = "SELECT coalesce(max(epoch), 0) FROM millpond.checkpoints WHERE job = 'held' AND error IS NULL"
        until("the job that keeps up", lambda: self.of_job("lag_ms < 1000"))
        before = self.server.value(newest)
        until("a checkpoint", lambda: self.server.value(newest) > before)
        time.sleep(AFTER_CHECKPOINT_SECONDS)

    def await_output(self, newest: int) -> None:
        """Until the view has a row that is newer."""
        reader = self.server.connect().cursor()
        reader.execute("SET read_freshness = 'any'")

        def newer() -> bool:
            reader.execute("SELECT newest FROM held WHERE customer = 0")
            return reader.fetchone()[0] > newest

        until("output", newer, 0.005)
        reader.connection.close()

    def recovery(self, ordered: float, wanted: str) -> dict:
        """The newest one since then, with its steps in ms since then."""
        query = ("SELECT extract(epoch FROM detected_at), cancelled_ms, restored_ms, replayed_ms, caught_up_ms, restored_from FROM millpond.recoveries "
                 f"WHERE job = 'held' AND {wanted} AND caught_up_ms IS NOT NULL AND extract(epoch FROM detected_at) >= {ordered - 0.001} "
                 "ORDER BY detected_at DESC LIMIT 1")
        detected, *after, source = until("the recovery", lambda: self.server.sql(query))[0]
        detected_ms = 1000 * (float(detected) - ordered)
        return dict(zip(STEPS, [detected_ms] + [detected_ms + float(step) for step in after])) | {"from": source}

    def kill(self, what: str, linked: bool = True) -> dict:
        self.await_checkpoint()
        ordered, newest = time.time(), self.feed.newest
        self.server.kill()
        if not linked:
            shutil.rmtree(pathlib.Path(self.server.directory.name) / "data/materializations")
        self.server.start()
        reader = self.server.connect().cursor()
        reader.execute("SET read_freshness = 'any'")
        reader.execute("SELECT newest FROM held WHERE customer = 0")
        assert reader.fetchone(), "the view is empty"
        answer = 1000 * (time.time() - ordered)
        self.await_output(newest)
        output = 1000 * (time.time() - ordered)
        print(f"{what}: the first answer after {answer / 1e3:.2f} s (target 2 s)", flush=True)
        return told({"what": what, "output": output} | self.recovery(ordered, "cause = 'restart'"))

    def detected(self, ordered: float, wanted: str) -> float | None:
        """When the failure was that is recovered from in the way that is wanted; None if there is none since then, not even soon."""
        query = f"SELECT extract(epoch FROM max(detected_at)) FROM millpond.recoveries WHERE job = 'held' AND {wanted} AND extract(epoch FROM detected_at) >= "
        began = time.monotonic()
        while time.monotonic() < began + SOON_SECONDS:
            if found := self.server.value(query + str(ordered)):
                return float(found)
            time.sleep(0.005)
        return None

    def fail(self, what: str, wanted: str, subtask: int) -> dict:
        """Lets a subtask of the aggregate fail, and once more for a failure of its job; that one counts from when it is detected."""
        self.await_checkpoint()
        fragment = self.server.value("SELECT fragment FROM millpond.checkpoint_subtasks WHERE job = 'held' GROUP BY fragment ORDER BY sum(log_bytes) DESC LIMIT 1")
        restarts = self.of_job("restarts")
        session = self.server.connect().cursor()
        while True:
            ordered, newest = time.time(), self.feed.newest
            for _ in range(1 if wanted == ALONE else 2):
                session.execute(f"ALTER MATERIALIZED VIEW held FAIL SUBTASK {subtask} OF FRAGMENT {fragment}")
            # The second failure may come at another epoch, and then is one of the subtask again.
            if detected := self.detected(ordered, wanted):
                break
            assert wanted == WHOLE, "the failure is not one of the subtask alone"
        if wanted == WHOLE:
            ordered, newest = detected, self.feed.newest
        self.await_output(newest)
        output = 1000 * (time.time() - ordered)
        found = self.recovery(ordered, wanted)
        assert self.of_job("restarts") - restarts == (0 if wanted == ALONE else 1), "the subtask was restarted with its peers, or the job more than once"
        return told({"what": what, "output": output} | found)

    def await_rows(self) -> None:
        """Until all that is in the files is in the view. Then nothing happens any more, so there are no checkpoints to wait for."""
        until("the end of the files", lambda: self.server.value("SELECT sum(split_offset) FROM millpond.sources") == self.rows.size(), 0.5)
        until("the end of the rows", lambda: self.of_job("lag_ms = 0"))

    def lacks(self) -> int:
        """How many rows that were written are not in the view."""
        with self.feed.gate:
            self.await_rows()
            return self.feed.newest - int(self.server.value("SELECT sum(orders) FROM held"))


class Flink:
    """A Flink job with the same query in a process of its own."""

    def __init__(self, arguments, first: pathlib.Path):
        self.rows = Rows(arguments, first, growing=False)
        self.feed, self.port = self.rows.feed, free_port()
        self.scratch = tempfile.TemporaryDirectory(prefix="failover-flink-")
        self.lines, self.log = [], open(f"{self.scratch.name}/log", "w")
        settings = {
            "parallelism.default": 2, "pipeline.object-reuse": "true", "rest.bind-address": "127.0.0.1", "rest.bind-port": self.port,
            "state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true", "execution.state-recovery.from-local": "true",
            "execution.checkpointing.local-backup.enabled": "true", "execution.checkpointing.interval": f"{CHECKPOINT_SECONDS}s",
            "execution.checkpointing.dir": f"file://{self.scratch.name}/checkpoints", "io.tmp.dirs": f"{self.scratch.name}/tmp",
            "taskmanager.memory.managed.size": "2g", "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 1000,
            "restart-strategy.fixed-delay.delay": "0 s",
        }
        statements = [f"SET '{key}' = '{value}'" for key, value in settings.items()]
        statements.append(f"CREATE TABLE orders ({orders.COLUMNS.replace('TEXT', 'STRING')}) WITH ('connector' = 'filesystem', 'format' = 'csv', "
                          f"'path' = 'file://{self.rows.folder.name}', 'source.monitor-interval' = '200ms')")
        statements.append("CREATE TABLE held (customer BIGINT, note STRING, orders BIGINT, newest BIGINT) WITH ('connector' = 'blackhole')")
        statements.append(f"INSERT INTO held SELECT customer, note, orders, watched(customer, newest) FROM ({QUERY})")
        script = pathlib.Path(self.scratch.name) / "job.sql"
        script.write_text(";\n".join(statements) + ";\n")
        self.process = subprocess.Popen([*flink.command(HERE / "Failover.java", "6g"), str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, bufsize=1)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            words = line.split()
            if words and words[0] in ("FAILED", "FIRST", "NEWEST"):
                self.lines.append((words[0], *map(int, words[1:])))

    def end(self) -> None:
        self.rows.end()
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.scratch.cleanup()

    def ask(self, path: str):
        """What Flink's REST interface answers, or None if there is nothing yet."""
        assert self.process.poll() is None, "Flink ended: " + pathlib.Path(self.log.name).read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return None

    def load(self) -> None:
        began = time.monotonic()
        jobs = until("the job", lambda: (self.ask("/jobs") or {}).get("jobs"))
        self.job = f"/jobs/{jobs[0]['id']}"

        def taken() -> bool:
            vertices = (self.ask(self.job) or {}).get("vertices", [])
            return bool(vertices) and vertices[-1]["metrics"]["read-records"] >= self.feed.first

        until("the end of the first rows", taken, 1)
        self.feed.start()
        until("a row of the feed", lambda: any(line[0] == "NEWEST" for line in self.lines))
        self.await_checkpoint()
        state = self.ask(f"{self.job}/checkpoints")["latest"]["completed"]["state_size"]
        print(f"flink: {state / 1e9:.3f} GB of state after {time.monotonic() - began:.0f} s", flush=True)

    def checkpoint(self) -> int:
        newest = ((self.ask(f"{self.job}/checkpoints") or {}).get("latest") or {}).get("completed") or {}
        return newest.get("id", 0)

    def await_checkpoint(self) -> None:
        before = self.checkpoint()
        until("a checkpoint", lambda: self.checkpoint() > before)
        time.sleep(AFTER_CHECKPOINT_SECONDS)

    def restarts(self) -> int:
        return int(float(self.ask(f"{self.job}/metrics?get=numRestarts")[0]["value"]))

    def fail(self) -> dict:
        self.await_checkpoint()
        restarts, seen = self.restarts(), len(self.lines)
        newest = max(line[2] for line in self.lines if line[0] == "NEWEST")
        self.process.stdin.write("fail\n")

        def after(kind: str, since: int, more: int = 0) -> int | None:
            return next((line[1] for line in self.lines[seen:] if line[0] == kind and line[1] >= since and line[-1] > more), None)

        failed = until("the failure", lambda: after("FAILED", 0), 0.01)
        output = until("output", lambda: after("FIRST", failed), 0.01)
        fresh = until("new output", lambda: after("NEWEST", output, newest), 0.01)
        until("the restart", lambda: self.restarts() == restarts + 1)
        return told({"what": "flink: a task", "output": output - failed, "fresh": fresh - failed})


def median(found: list[dict]) -> dict:
    """Of several rounds the middle one by output, with the output of the worst."""
    ordered = sorted(found, key=lambda row: row["output"])
    return ordered[len(ordered) // 2] | {"worst": ordered[-1]["output"]}


def local(arguments, first: pathlib.Path) -> list[dict]:
    pond = Pond(arguments, first)
    try:
        pond.load()
        found = [pond.kill("kill -9")]
        for what, wanted in (("one subtask, exactly-once", ALONE), ("the job", WHOLE)):
            found.append(median([pond.fail(what, wanted, number % 2) for number in range(arguments.rounds)]))
        print(f"rows that the view lacks: {pond.lacks()} (target 0)", flush=True)
        pond.server.sql("ALTER MATERIALIZED VIEW held SET (recovery = 'approximate')")
        found.append(median([pond.fail("one subtask, approximate", ALONE, number % 2) for number in range(arguments.rounds)]))
        print(f"and after {arguments.rounds} approximate recoveries: {pond.lacks()}", flush=True)
        return found
    finally:
        pond.end()


def store(arguments, first: pathlib.Path) -> list[dict]:
    objects = ObjectServer()
    try:
        pond = Pond(arguments, first, "--object-store", f"s3://{objects.BUCKET}/pond", environment=objects.environment)
        try:
            pond.load()
            return [pond.kill("kill -9, S3, linked files"), pond.kill("kill -9, S3, no local files", linked=False)]
        finally:
            pond.end()
    finally:
        objects.stop()


def beside(arguments, first: pathlib.Path) -> list[dict]:
    job = Flink(arguments, first)
    try:
        job.load()
        return [median([job.fail() for _ in range(arguments.rounds)])]
    finally:
        job.end()


def told(row: dict) -> dict:
    """Says at once what a long run has found."""
    print(f"{row['what']}: output after {row['output']:.0f} ms", flush=True)
    return row


def table(found: list[dict]) -> None:
    theirs = next((row["output"] for row in found if "fresh" in row), None)
    print(f"{'ms since the failure':32}" + "".join(f"{step:>11}" for step in STEPS) + f"{'output':>9}{'worst':>9}  {'state from':14}" + ("flink / ours" if theirs else ""))
    for row in found:
        steps = "".join(f"{row[step]:>11.0f}" if step in row else f"{'':11}" for step in STEPS)
        thrown = row["detected"] if row["what"].startswith("one subtask") else 0
        last = f"new output after {row['fresh']:.0f}" if "fresh" in row else f"{theirs / (row['output'] - thrown):.1f} (target 5)" if theirs else ""
        print(f"{row['what']:32}{steps}{row['output']:>9.0f}{row.get('worst', row['output']):>9.0f}  {row.get('from') or '':14}{last}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="millpond")
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="local,store,flink")
    arguments = parser.parse_args()
    arguments.rows = int(arguments.gigabytes * 1e9 / orders.STATE_BYTES)
    found = []
    with tempfile.TemporaryDirectory(prefix="millpond-bench-rows-") as scratch:
        first = pathlib.Path(scratch) / "first"
        first.mkdir()
        orders.write(first, arguments.rows)
        for name, measured in {"local": local, "store": store, "flink": beside}.items():
            if name in arguments.only.split(","):
                found += measured(arguments, first)
    table(found)


if __name__ == "__main__":
    main()
